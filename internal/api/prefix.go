package api

import (
	"net/http"
	"strings"
)

// withPrefix has redirects lead to below the path at which the browser sees the hub: an
// instance does not know of it. Those of the hub itself are relative.
func withPrefix(w http.ResponseWriter, prefix string) http.ResponseWriter {
	return &LateWriter{ResponseWriter: w, Late: func(header http.Header, _ int) {
		if to := header.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
			header.Set("Location", prefix+to)
		}
	}}
}
