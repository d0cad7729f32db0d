package comfy

import (
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
)

// immutable is what browsers are told of files whose names change with their
// content: they never ask again. ComfyUI says no-cache, since 0.18 no-store,
// and 20 MB of scripts come anew with every reload.
const immutable = "public, max-age=31536000, immutable"

// hashedName is how the bundler names the files of the web UI's build:
// "index-vtow2bzT.js", the last eight letters being base64url of a hash.
var hashedName = regexp.MustCompile(`^.+-([A-Za-z0-9_-]{8})\.([a-z0-9]+)$`)

// hashedKinds are the endings of such files; a page is never one.
var hashedKinds = []string{
	"js", "mjs", "css", "json", "svg", "png", "jpg", "jpeg", "webp", "gif", "avif", "ico", "woff", "woff2", "ttf", "otf", "eot", "wasm", "mp3", "mp4", "webm", "map",
}

// isHashed reports whether a path names a file of the web UI's build by a hash
// of its content. Files that are copied into the build under their own names
// must not be taken for one, since a browser would keep the old one for a year:
// eight letters that could be a word are no hash.
func isHashed(asked aiohttp.Path) bool {
	folder, base := path.Split(asked.Decoded())
	if folder != "/assets/" {
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

// keptByBrowsers marks the answer to a hashed name as one that never changes,
// whoever gives it. A browser that asks whether its older copy still holds (304)
// is told, too. What is not such a file, an error or a page, stays as it is.
func keptByBrowsers(w http.ResponseWriter) http.ResponseWriter {
	return &api.LateWriter{ResponseWriter: w, Late: func(header http.Header, status int) {
		switch {
		case status != http.StatusOK && status != http.StatusPartialContent && status != http.StatusNotModified,
			strings.HasPrefix(header.Get("Content-Type"), "text/html"):
			return
		}
		header.Set("Cache-Control", immutable)
		header.Del("Pragma")
		header.Del("Expires")
	}}
}
