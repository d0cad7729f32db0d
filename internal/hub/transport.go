package hub

import (
	"github.com/comfyhub/comfyhub/internal/peers"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// transport connects the streams with those of other hubs, if others can share the queue.
func (h *Hub) transport(boot string) stream.Transport {
	if h.DB.Embedded() {
		return nil
	}
	return peers.New(h.DB, boot)
}
