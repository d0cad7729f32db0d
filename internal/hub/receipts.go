package hub

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// maxFetched bounds the prompts of one listing that count as read.
const maxFetched = 256

// streamsOf are the event streams that the requester may have: of the client that
// the request names, else of those used from its place.
func (h *Hub) streamsOf(a api.Requester) []stream.Key {
	var keys []stream.Key
	for _, client := range h.recent.Clients(a) {
		keys = append(keys, stream.Key{Tenant: a.Tenant, Client: client})
	}
	return keys
}

// fetched notes that the requester was answered with the end of a prompt that it
// named: its next socket must not be told again.
func (h *Hub) fetched(a api.Requester, e queue.Entry) {
	h.streams.Fetched(h.streamsOf(a), []string{e.ID})
}

// listed notes that the requester was answered with the history. Of several clients
// at one place it was one, and another may still wait for its end.
func (h *Hub) listed(a api.Requester, entries []queue.Entry) {
	streams := h.streamsOf(a)
	if len(streams) != 1 {
		return
	}
	ids := make([]string, 0, min(len(entries), maxFetched))
	for _, e := range entries[max(len(entries)-maxFetched, 0):] { // the newest are last
		ids = append(ids, e.ID)
	}
	h.streams.Fetched(streams, ids)
}
