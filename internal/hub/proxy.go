package hub

import (
	"io"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// guarded are the paths under which custom node managers install and change
// code on an instance. One visitor must not change the machines of all.
var guarded = []string{"/manager", "/customnode", "/snapshot", "/v2/manager", "/v2/customnode", "/v2/snapshot"}

// forward answers a request that is no route of the hub: a page, a file of an
// extension, a call of a custom node. Pages come from the hub's own copy of the
// web interface or from the primary; all else goes to the instance that is the
// client's, see sticky.
func (h *Hub) forward(w http.ResponseWriter, r *http.Request, a asker) {
	if refusedPath(w, r) {
		return
	}
	if h.isGuarded(r) {
		writeHubError(w, hubError{
			status: http.StatusForbidden, kind: "manager_off",
			message: "Changing the code of instances through the hub is switched off",
			details: "The hub's operator can allow it with `manager on`.",
		})
		return
	}
	if h.serveFrontend(w, r) {
		return
	}
	client := h.sticky(a)
	if isPage(r) {
		client = h.dispatch.Primary()
	}
	switch {
	case client != nil:
		h.passOn(client, w, r)
	case r.Method == http.MethodGet && bare(r.URL.EscapedPath()) == "/":
		writeText(w, http.StatusServiceUnavailable, "ComfyHub is running, and no ComfyUI instance is connected yet.\n")
	default:
		writeNotFound(w, r) // no instance has the path
	}
}

// passOn lets one instance answer.
func (h *Hub) passOn(client *comfyui.Client, w http.ResponseWriter, r *http.Request) {
	client.Proxy(func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() != nil {
			return // the visitor has gone
		}
		h.log().Debug("an instance did not answer", "error", err)
		writeNoInstance(w)
	}).ServeHTTP(w, r)
}

func (h *Hub) isGuarded(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions || h.settings().Manager {
		return false
	}
	path := bare(r.URL.Path) // decoded, as the instance reads it
	for _, prefix := range guarded {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// copyAnswer passes an instance's answer on.
func copyAnswer(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Disposition", "Cache-Control", "Etag", "Last-Modified"} {
		if value := resp.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the visitor may be gone
}
