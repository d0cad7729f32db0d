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

// hashedKinds are the endings of such files; a page is never one.
var hashedKinds = []string{
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
	return match != nil && slices.Contains(hashedKinds, match[2]) && !isWord(match[1])
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
