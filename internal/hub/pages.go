package hub

import "net/http"

// getFromPrimary lets the primary instance answer: what its web interface is
// made of, and what must come from one build.
func (h *Hub) getFromPrimary(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	client := h.dispatch.Primary()
	if client == nil {
		writeNoInstance(w)
		return
	}
	h.passOn(client, w, r)
}

// getFromPrimaryOr is getFromPrimary for routes that old versions of ComfyUI do
// not have. The web interface may be newer than the instances and takes a 404
// for a fault: it is told what a server says that has nothing there.
func (h *Hub) getFromPrimaryOr(nothing string) handler {
	return func(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
		client := h.dispatch.Primary()
		if client == nil {
			writeNoInstance(w)
			return
		}
		resp, err := client.Ask(r.Context(), pathOf(r).Bare().Escaped(), forwardedQuery(r))
		switch {
		case err != nil:
			h.log().Debug("an instance did not answer", "error", err)
			writeNoInstance(w)
		case resp.StatusCode == http.StatusNotFound:
			_ = resp.Body.Close()
			writeJSON(w, http.StatusOK, []byte(nothing))
		default:
			copyAnswer(w, resp)
		}
	}
}
