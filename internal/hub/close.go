package hub

import (
	"context"
	"errors"
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
	if h.streams != nil {
		errs = append(errs, h.streams.Close(ctx))
	}
	if h.board != nil {
		h.board.Close()
	}
	if h.staticInstances != nil {
		h.staticInstances.close()
	}
	if h.tunnels != nil {
		h.tunnels.close()
	}
	if h.workers != nil {
		h.workers.stop()
	}
	if h.gossip != nil {
		errs = append(errs, h.gossip.close())
	}
	if h.stopHouse != nil {
		h.stopHouse()
	}
	h.maintenance.Wait()
	if h.dispatch != nil {
		h.dispatch.Close()
	}
	h.overflow.shut()
	if h.workers != nil {
		h.workers.close()
	}
	h.tracing.Close(ctx)
	if h.ends != nil {
		h.ends.Confirmed.Close(ctx)
	}
	if h.copies != nil {
		h.copies.Close()
		h.kept.Close()
	}
	if served {
		if err := h.store.Leave(ctx, h.self); err != nil {
			h.log().Warn("the other hubs will take a while to see that this one left", "error", err)
		}
	}
	h.closeNotes()
	if h.storage != nil {
		errs = append(errs, h.storage.Close())
	}
	if h.db != nil {
		errs = append(errs, h.db.Close())
	}
	return errors.Join(errs...)
}
