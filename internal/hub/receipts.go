package hub

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// maxFetched bounds the prompts of one listing that count as read.
const maxFetched = 256

// streamsOf are the event streams that the asker may have: of the client that
// the request names, else of those used from its place.
func (h *Hub) streamsOf(a asker) []stream.Key {
	var keys []stream.Key
	for _, client := range h.clientsOf(a) {
		keys = append(keys, stream.Key{Tenant: a.tenant, Client: client})
	}
	return keys
}

// fetched notes that the asker was answered with history entries: it has read
// how these prompts ended, and its next socket must not be told again.
func (h *Hub) fetched(a asker, entries ...queue.Entry) {
	ids := make([]string, 0, min(len(entries), maxFetched))
	for _, e := range entries[max(len(entries)-maxFetched, 0):] { // the newest are last
		ids = append(ids, e.ID)
	}
	h.streams.Fetched(h.streamsOf(a), ids)
}

// viewed notes that the asker fetches an output file, whose name it has from
// the end of a prompt.
func (h *Hub) viewed(a asker, r *http.Request) {
	h.streams.Viewed(h.streamsOf(a), queryOf(r).Get("filename"))
}
