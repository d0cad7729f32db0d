package hub

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// openWebUI keeps files of the web UI for as long as the connection lasts over which an instance
// sent them.
func (h *Hub) openWebUI() {
	h.webUI = webui.New(h.log())
	h.clients.OnChange(func(gone, _ *comfyui.Client) {
		h.pages.Changed()
		if gone != nil {
			h.webUI.Forget(gone)
		}
		h.webUI.Changed()
	})
}

// readAheadFrom returns the instance that the web UI comes from, nil if the hub has a copy of its
// own.
func (h *Hub) readAheadFrom() *comfyui.Client {
	if h.Settings().Frontend != "" {
		return nil
	}
	return h.Primary()
}
