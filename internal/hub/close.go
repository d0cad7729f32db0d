package hub

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/files"
)

// Close ends sockets with a going-away frame, leaves the gossip and closes Redis. Runs go on at
// their instances and are adopted by the next hub.
func (h *Hub) Close(ctx context.Context) error {
	h.starting.Lock() // Held: as in Start
	defer h.starting.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	return h.shut(ctx)
}

// shut closes what is open, in reverse order.
func (h *Hub) shut(ctx context.Context) error {
	var errs []error
	h.entering.Lock()
	if h.stopOpening != nil {
		h.stopOpening()
	}
	served := h.started.Swap(false)
	h.entering.Unlock()
	if h.Streams != nil {
		errs = append(errs, h.Streams.Close(ctx))
	}
	if h.Board != nil {
		h.Board.Close()
	}
	if h.direct != nil {
		h.direct.Close()
	}
	if h.Tunnels != nil {
		h.Tunnels.Close()
	}
	if h.Workers != nil {
		h.Workers.Stop()
	}
	if h.Members != nil {
		errs = append(errs, h.Members.Close())
	}
	if h.stopHouse != nil {
		h.stopHouse()
	}
	h.maintenance.Wait()
	if h.Dispatch != nil {
		h.Dispatch.Close()
	}
	if h.Endpoints != nil {
		h.Endpoints.Close()
	}
	if h.Workers != nil {
		h.Workers.Close()
	}
	h.tracing.Close(ctx)
	if h.Ends != nil {
		h.Ends.Confirmed.Close(ctx)
	}
	if h.copies != nil {
		h.copies.Close()
		h.kept.Close()
	}
	if served {
		if err := files.NewSharing(h.DB, h.Storage).Leave(ctx, h.self); err != nil {
			h.log().Warn("the other hubs will take a while to see that this one left", "error", err)
		}
	}
	h.closeNotes()
	if h.Storage != nil {
		errs = append(errs, h.Storage.Close())
	}
	if h.DB != nil {
		errs = append(errs, h.DB.Close())
	}
	return errors.Join(errs...)
}
