package hub

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Primary is the instance that answers for the whole fleet, nil while none is
// connected.
func (h *Hub) Primary() *comfyui.Client { return h.dispatch.Primary() }

// Clients are those of all connected instances, the primary's first.
func (h *Hub) Clients() []*comfyui.Client { return h.dispatch.Clients() }

// ClientOf is that of an instance by its name, nil while it is not connected.
func (h *Hub) ClientOf(instance string) *comfyui.Client { return h.clients.ByName(instance) }

// ClientFor is the instance for a call that is no route of the hub, given the
// client ids that it may come from: the one that runs a job of theirs, because a
// node may be waiting for just this call; else the one that ran their last; else
// the primary. It is nil while none is connected.
func (h *Hub) ClientFor(tenant string, clients []string) *comfyui.Client {
	for _, id := range clients {
		if c := h.dispatch.Running(tenant, id); c != nil {
			return c
		}
	}
	for _, id := range clients {
		if c := h.dispatch.RanLast(tenant, id); c != nil {
			return c
		}
	}
	return h.dispatch.Primary()
}

// Doubt makes the hub ask an instance again what it can run: a call may have
// changed it.
func (h *Hub) Doubt(c *comfyui.Client) { h.dispatch.Doubt(c) }

// Introduce makes a client known to an instance, if the hub knows it, and
// returns the id that the instance knows it by.
func (h *Hub) Introduce(ctx context.Context, to *comfyui.Client, tenant, client string) (comfyui.Alias, bool) {
	k := stream.Key{Tenant: tenant, Client: client}
	if !h.streams.Knows(ctx, k) {
		return comfyui.Alias{}, false
	}
	return h.dispatch.Introduce(ctx, to, k)
}
