// Package page is the room of the dashboard: static files that are part of the program. The
// page gets what it shows from the routes of package ops.
package page

import (
	"crypto/sha256"
	"embed"
	"net/http"
	"path"

	"github.com/comfyhub/comfyhub/internal/api"
)

//go:embed static
var static embed.FS

// Path is below which the page is.
const Path = "/hub/"

// policy lets the page load its own files and pictures of the hub, and nothing else: what it
// shows was named by users. Pictures may also be blobs, which the page makes of previews.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// kinds are the media types of the files, by the ends of their names.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// AddRoutes adds the routes of the page to those of the hub's own API.
func AddRoutes(t *api.Router) {
	t.HandleAsset("GET /hub", func(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
		w.Header().Set("Location", "hub/") // also where a proxy serves the hub below a path
		api.WriteEmpty(w, http.StatusPermanentRedirect)
	})
	t.HandleAsset("GET "+Path, func(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
		serve(w, r, "index.html")
	})
	t.HandleAsset("GET "+Path+"page/*", func(w http.ResponseWriter, r *http.Request, _ api.Requester, p []string) {
		serve(w, r, p[0])
	})
}

// serve answers with one of the files.
func serve(w http.ResponseWriter, r *http.Request, name string) {
	body, err := static.ReadFile("static/" + name)
	kind := kinds[path.Ext(name)]
	if err != nil || kind == "" {
		api.WriteErrorText(w, http.StatusNotFound, "There is no such file")
		return
	}
	api.AsPage(w)
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	sum := sha256.Sum256(body)
	if api.Unchanged(w, r, sum[:]) {
		return
	}
	h.Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
}
