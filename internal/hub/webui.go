package hub

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// openWebUI keeps files of the web UI for as long as the connection lasts over which an instance
// sent them.
func (h *Hub) openWebUI() {
	h.WebUI = webui.New(h.log())
	h.Clients.OnChange(func(gone, _ *comfyui.Client) {
		h.Pages.Changed()
		if gone != nil {
			h.WebUI.Forget(gone)
		}
		h.WebUI.Changed()
	})
}

// readAheadFrom returns the instance that the web UI comes from, nil if the hub has a copy of its
// own.
func (h *Hub) readAheadFrom() *comfyui.Client {
	if h.Settings().Frontend != "" {
		return nil
	}
	return h.Instances.Primary()
}
