package hub

import (
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// guarded are the paths under which custom node managers install and change
// code on an instance. One visitor must not change the machines of all.
var guarded = []string{"/manager", "/customnode", "/snapshot", "/v2/manager", "/v2/customnode", "/v2/snapshot"}

// forward passes a request on that is no route of the hub: a page, a file of
// an extension, a call of a custom node. It goes to the instance that runs
// this client's job, else to the one that ran its last, else to the primary.
func (h *Hub) forward(w http.ResponseWriter, r *http.Request, a asker) {
	if h.isGuarded(r) {
		writeHubError(w, hubError{
			status: http.StatusForbidden, kind: "manager_off",
			message: "Changing the code of instances through the hub is switched off",
			details: "The hub's operator can allow it with `manager on`.",
		})
		return
	}
	client := h.sticky(a)
	if client == nil {
		if r.Method == http.MethodGet && bare(r.URL.EscapedPath()) == "/" {
			writeText(w, http.StatusServiceUnavailable, "ComfyHub is running, and no ComfyUI instance is connected yet.\n")
			return
		}
		writeNoInstance(w)
		return
	}
	h.passOn(client, w, r)
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
	path := bare(r.URL.EscapedPath())
	for _, prefix := range guarded {
		if path == prefix || strings.HasPrefix(path, prefix+"/") || strings.HasPrefix(path, prefix+"?") {
			return true
		}
	}
	return false
}
