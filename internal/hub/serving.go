package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
)

// checkParts makes sure that Redis and the storage work, that the other hubs use this storage, and
// that the hub has its keys.
func (h *Hub) checkParts(ctx context.Context) error {
	if _, err := h.DB.Now(ctx); err != nil {
		return err
	}
	err := files.NewSharing(h.DB, h.Storage).Check(ctx, h.self)
	if errors.Is(err, files.ErrNotShared) {
		return fmt.Errorf("%w; give all of them the same storage", err)
	}
	if err != nil {
		return err
	}
	// Strangers can work together; the janitor reports it and deletes nothing.
	if err := h.Bond.Meet(ctx); err != nil && !errors.Is(err, files.ErrStrangers) {
		return err
	}
	if err := explainKeys(h.Ring.Refresh(ctx)); err != nil {
		return err
	}
	// What a version before the signatures has left in Redis is signed.
	if err := h.Keys.Adopt(ctx); err != nil {
		return err
	}
	if err := h.Machines.Adopt(ctx); err != nil {
		return err
	}
	if h.pins != nil {
		if err := h.pins.Adopt(ctx); err != nil {
			return err
		}
	}
	if err := h.memory.Recall(ctx); err != nil {
		return err
	}
	if h.id.Storage != "" {
		h.data.KeepMark(h.id.Storage, h.Storage.Health().Mark())
	}
	h.warn(ctx)
	return nil
}

// enter starts serving, unless the hub was closed meanwhile.
func (h *Hub) enter(opening context.Context) {
	h.entering.Lock()
	defer h.entering.Unlock()
	if opening.Err() != nil {
		return
	}
	maintenance, stop := context.WithCancel(context.Background())
	h.stopHouse = stop
	h.since = time.Now()
	h.Dispatch.Start()
	h.maintenance.Go(func() { h.Storage.Health().Watch(maintenance, h.log, func(error) { h.Dispatch.Wake() }) })
	h.maintenance.Go(func() { h.DB.Clock().Follow(maintenance) })
	h.maintenance.Go(func() { h.Stops.Run(maintenance) })
	h.maintenance.Go(func() { h.Scaler.Run(maintenance) })
	h.maintenance.Go(func() { h.Keys.Follow(maintenance, h.log) })
	h.maintenance.Go(func() { h.Recorder.Run(maintenance) })
	h.maintenance.Go(func() { h.Janitor.Run(maintenance) })
	h.maintenance.Go(func() { h.LastKnown.Run(maintenance, h.Inventory.Catalog) })
	h.maintenance.Go(func() { h.roster.Run(maintenance, h.Dispatch.Instances.Names, h.Inventory.Recalled) })
	h.maintenance.Go(func() { h.memory.Run(maintenance) })
	h.maintenance.Go(func() { h.WebUI.Run(maintenance, h.readAheadFrom) })
	h.maintenance.Go(func() { h.Pages.Run(maintenance) })
	h.maintenance.Go(func() { h.Ends.Watch(maintenance) })
	h.maintenance.Go(func() { h.Watches.Run(maintenance) })
	h.maintenance.Go(func() { h.Callbacks.Run(maintenance) })
	h.maintenance.Go(func() { h.Ring.Follow(maintenance) })
	h.maintenance.Go(func() { h.Inventory.Follow(maintenance, h.Fleet) })
	for _, d := range h.Disks {
		d.Watch(maintenance, h.log())
	}
	h.started.Store(true)
}

// warn tells the operator what is unsafe about the Redis in use.
func (h *Hub) warn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	texts, err := h.DB.Warnings(ctx)
	if err != nil {
		h.log().Warn("cannot tell whether Redis is set up for production", "error", err)
	}
	for _, text := range texts {
		h.log().Warn("Redis is not set up for production", "warning", text)
	}
}

// Ready returns nil if the hub can accept prompts and run them: it has started, Redis stores what a
// script writes, and the storage takes files.
func (h *Hub) Ready(ctx context.Context) error {
	if h.started.Load() {
		return errors.Join(h.readiness.Check(ctx), h.Storage.Health().Err())
	}
	if why := h.opening.Reason(); why != nil {
		return fmt.Errorf("%w: %w", config.ErrNotStarted, why)
	}
	return config.ErrNotStarted
}
