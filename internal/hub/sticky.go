package hub

import "github.com/comfyhub/comfyhub/internal/comfyui"

// sticky is the instance for a call that is no route of the hub: the one that
// runs this client's job, because a node may be waiting for just this call;
// else the one that ran its last; else the primary. It is nil while none is
// connected.
func (h *Hub) sticky(a asker) *comfyui.Client {
	clients := h.clientsOf(a)
	for _, id := range clients {
		if c := h.dispatch.Running(a.tenant, id); c != nil {
			return c
		}
	}
	for _, id := range clients {
		if c := h.dispatch.RanLast(a.tenant, id); c != nil {
			return c
		}
	}
	return h.dispatch.Primary()
}

// clientsOf are the client ids that a request may come from, the likeliest
// first: the one that it names, else those seen from its address and program.
// Calls of custom nodes name none.
func (h *Hub) clientsOf(a asker) []string {
	if a.client != "" {
		return []string{a.client}
	}
	return h.seen.of(a.place())
}

// meet notes that a client id was used by the asker.
func (h *Hub) meet(a asker, client string) {
	if client != "" {
		h.seen.note(a.place(), client)
	}
}

// place is where an asker comes from, within its tenant.
func (a asker) place() string { return a.tenant + "/" + a.origin }
