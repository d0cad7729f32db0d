package comfy

import (
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
)

// immutable is what browsers are told of files whose names change with their
// content: they never ask again. ComfyUI says no-cache, since 0.18 no-store,
// and 20 MB of scripts come again with every reload.
const immutable = "public, max-age=31536000, immutable"

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
