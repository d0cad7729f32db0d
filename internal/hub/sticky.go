package hub

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// sticky is the instance for a call that is no route of the hub: the one that
// runs this client's job, because a node may be waiting for just this call;
// else the one that ran its last; else the primary. It is nil while none is
// connected.
func (h *Hub) sticky(a api.Requester) *comfyui.Client {
	clients := h.recent.Clients(a)
	for _, id := range clients {
		if c := h.dispatch.Running(a.Tenant, id); c != nil {
			return c
		}
	}
	for _, id := range clients {
		if c := h.dispatch.RanLast(a.Tenant, id); c != nil {
			return c
		}
	}
	return h.dispatch.Primary()
}
