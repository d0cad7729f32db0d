package webui

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Folder is where the files of the build are.
const Folder = "/assets/"

// hashedName is how the bundler names the files of the web UI's build:
// "index-vtow2bzT.js", the last eight letters being base64url of a hash.
var hashedName = regexp.MustCompile(`^.+-([A-Za-z0-9_-]{8})\.([a-z0-9]+)$`)

// kinds are the endings of the build's files; a page is never one.
var kinds = []string{
	"js", "mjs", "css", "json", "svg", "png", "jpg", "jpeg", "webp", "gif", "avif", "ico", "woff", "woff2", "ttf", "otf", "eot", "wasm", "mp3", "mp4", "webm", "map",
}

// IsHashed reports whether a path, decoded, names a file of the web UI's build
// by a hash of its content. Files that are copied into the build under their own
// names must not be taken for one, since a browser would keep the old one for a
// year: eight letters that could be a word are no hash.
func IsHashed(decoded string) bool {
	folder, base := path.Split(decoded)
	if folder != Folder {
		return false
	}
	match := hashedName.FindStringSubmatch(base)
	return match != nil && slices.Contains(kinds, match[2]) && !isWord(match[1])
}

// IsFile reports whether a path, decoded, names a file of the web UI's build that
// may be kept, with a hash in its name or without: web UI 1.27 has 440 modules
// of its libraries under their own names.
func IsFile(decoded string) bool {
	return strings.HasPrefix(decoded, Folder) && path.Clean(decoded) == decoded &&
		slices.Contains(kinds, strings.TrimPrefix(path.Ext(decoded), "."))
}

// isWord reports whether a text could be one or two words rather than a hash:
// no digit, no underscore, and no capital but the first letter of a word.
func isWord(text string) bool {
	for word := range strings.SplitSeq(text, "-") {
		for n, c := range word {
			if c >= '0' && c <= '9' || c == '_' || n > 0 && c >= 'A' && c <= 'Z' {
				return false
			}
		}
	}
	return true
}
