package api

import (
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// withCORS adds the headers with which a ComfyUI of a version lets pages of another site read
// its answers, as --enable-cors-header does: pages from origin, "*" for all.
// Those of an instance with the same option are replaced and not repeated:
// browsers refuse an answer that has one twice. Where there are keys, pages may show one in
// the header that ComfyUI does not know. A page that asks for Comfy-User may send it:
// ComfyUI's web UI does so with each request, and --enable-cors-header forgets it.
func withCORS(w http.ResponseWriter, r *http.Request, origin string, v comfyui.Version, keys KeyPolicy) http.ResponseWriter {
	methods := "POST, GET, DELETE, PUT, OPTIONS"
	if !v.Known() || v.AtLeast(0, 4, 0) {
		methods += ", PATCH"
	}
	headers := "Content-Type, Authorization"
	if keys != KeysOff {
		headers += ", X-API-Key"
	}
	if strings.Contains(strings.ToLower(r.Header.Get("Access-Control-Request-Headers")), "comfy-user") {
		headers += ", Comfy-User"
	}
	return &LateWriter{ResponseWriter: w, Late: func(header http.Header, status int) {
		for key := range header {
			if strings.HasPrefix(key, "Access-Control-") {
				delete(header, key)
			}
		}
		if !thrown(status) {
			header.Set("Access-Control-Allow-Origin", origin)
			header.Set("Access-Control-Allow-Methods", methods)
			header.Set("Access-Control-Allow-Headers", headers)
			header.Set("Access-Control-Allow-Credentials", "true")
		}
	}}
}

// thrown reports answers that are exceptions in ComfyUI: its middleware, which
// adds the headers, does not see those.
func thrown(status int) bool {
	switch status {
	case http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusInternalServerError:
		return true
	}
	return false
}
