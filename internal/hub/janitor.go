package hub

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
)

const (
	// sweepEvery is how often bytes that no name and no job needs are looked for.
	sweepEvery = 30 * time.Minute
	// sweepAge is how old they must be.
	sweepAge = 6 * time.Hour
)

// keepHouse does what has no hurry: it deletes bytes that nobody can reach.
func (h *Hub) keepHouse(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	mark := time.NewTicker(time.Minute)
	defer mark.Stop()
	for {
		select {
		case <-mark.C:
			if err := h.store.CheckShared(ctx, h.self); errors.Is(err, files.ErrNotShared) {
				h.log().Error("files of one hub cannot be seen through the other", "error", err)
			}
			continue
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := h.held.expire(ctx); err != nil {
			h.log().Warn("cannot delete old held pictures", "error", err)
		}
		swept, err := h.sweep(ctx)
		if err != nil {
			h.log().Warn("cannot sweep the storage", "error", err)
		}
		if swept.Files > 0 {
			h.log().Info("swept the storage", "files", swept.Files, "bytes", swept.Bytes)
		}
	}
}

// sweep deletes what neither a name nor a waiting or running job needs.
func (h *Hub) sweep(ctx context.Context) (files.Swept, error) {
	jobs, err := h.queue.Live(ctx, "")
	if err != nil {
		return files.Swept{}, err
	}
	keys := make([]string, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	bodies, err := h.queue.Bodies(ctx, keys)
	if err != nil {
		return files.Swept{}, err
	}
	pinned := map[string]bool{}
	for _, body := range bodies {
		if len(body.Inputs) == 0 {
			continue
		}
		var in inputs
		if err := json.Unmarshal(body.Inputs, &in); err != nil {
			return files.Swept{}, err // what cannot be read may be needed
		}
		pins, err := files.DecodePins(in.Pins)
		if err != nil {
			return files.Swept{}, err
		}
		for _, key := range pins.Keys() {
			pinned[key] = true
		}
	}
	return h.store.Sweep(ctx, sweepAge, pinned)
}
