package hub

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

const (
	// houseEvery is how often the house is looked after. Each time a little is
	// done, so that all of the storage is looked at in about an hour.
	houseEvery = time.Minute
	// sweptAtOnce are the parts of the storage that are swept at one time.
	sweptAtOnce = 5
	// sweepAge is how old bytes must be that no name and no job needs.
	sweepAge = 6 * time.Hour
	// youngest is the age at which a file can be deleted at all: a run that
	// shows an older file again must not lose it to its neighbours.
	youngest = 10 * time.Minute
)

// keepHouse does what has no hurry: it deletes what is too old or too much, and
// bytes that nobody can reach. One hub at a time does so.
func (h *Hub) keepHouse(ctx context.Context) {
	tick := time.NewTicker(houseEvery)
	defer tick.Stop()
	h.shareLogins(ctx)
	for part := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		h.shareLogins(ctx)
		if err := h.store.CheckShared(ctx, h.self); errors.Is(err, files.ErrNotShared) {
			h.log().Error("files of one hub cannot be seen through the other", "error", err)
		}
		lead, err := h.store.Lead(ctx, "house", h.self, 3*houseEvery)
		if err != nil || !lead {
			continue
		}
		if err := h.expireKeys(ctx); err != nil {
			h.log().Warn("cannot delete keys that were replaced long ago", "error", err)
		}
		if err := h.retain(ctx); err != nil {
			h.log().Warn("cannot delete what is too old or too much", "error", err)
		}
		if part == 0 {
			if err := h.queue.RecountHistory(ctx); err != nil {
				h.log().Warn("cannot count the history of each tenant", "error", err)
			}
			if err := h.store.Adopt(ctx); err != nil {
				h.log().Warn("cannot count the files of each tenant", "error", err)
			}
		}
		if err := h.held.Expire(ctx); err != nil {
			h.log().Warn("cannot delete old held pictures", "error", err)
		}
		for range sweptAtOnce {
			swept, err := h.store.Sweep(ctx, part, sweepAge, h.pinned)
			if err != nil {
				h.log().Warn("cannot sweep the storage", "error", err)
			}
			h.tellSwept("swept the storage", swept)
			part = (part + 1) % files.SweepParts
		}
	}
}

func (h *Hub) shareLogins(ctx context.Context) {
	if err := h.logins.share(ctx, h.db); err != nil {
		h.log().Debug("cannot share with other hubs that users log in", "error", err)
	}
}

func (h *Hub) tellSwept(what string, swept files.Swept) {
	if swept.Files > 0 {
		h.log().Info(what, "files", swept.Files, "bytes", swept.Bytes)
	}
}

// retain deletes ended jobs that are too old, or whose files are too much, and
// the files that only such jobs name; then uploads that nobody uses.
func (h *Hub) retain(ctx context.Context) error {
	now, err := h.db.Now(ctx)
	if err != nil {
		return err
	}
	return h.retainAt(ctx, now)
}

// retainAt is retain at a time of Redis's clock.
func (h *Hub) retainAt(ctx context.Context, now time.Time) error {
	s := h.Settings()
	if s.HistoryAge > 0 {
		if err := h.forget(ctx, "", now.Add(-s.HistoryAge), now); err != nil {
			return err
		}
	}
	if own := s.TenantLimits.HistorySize; s.HistorySize > 0 || own > 0 {
		excess, err := h.store.Excess(ctx, s.HistorySize, own)
		if err != nil {
			return err
		}
		for _, e := range excess {
			if err := h.forget(ctx, e.Tenant, e.Until, now); err != nil {
				return err
			}
		}
	}
	if s.InputAge > 0 {
		swept, err := h.store.Expire(ctx, job.TypeInput, oldEnough(now.Add(-s.InputAge), now), h.pinned)
		h.tellSwept("deleted inputs that nobody uses", swept)
		return err
	}
	return nil
}

// forget deletes the jobs of a tenant, or of all with "", that ended until a
// moment, and the files that no younger one names. The jobs go first: an entry
// must not name what is gone.
func (h *Hub) forget(ctx context.Context, tenant string, until, now time.Time) error {
	until = oldEnough(until, now)
	if err := h.queue.ExpireHistory(ctx, tenant, until); err != nil {
		return err
	}
	var swept files.Swept
	var err error
	if tenant == "" {
		swept, err = h.store.Expire(ctx, job.TypeOutput, until, h.pinned)
	} else {
		swept, err = h.store.ExpireOwn(ctx, tenant, until, h.pinned)
	}
	h.tellSwept("deleted files of old jobs", swept)
	return err
}

func oldEnough(until, now time.Time) time.Time {
	if young := now.Add(-youngest); until.After(young) {
		return young
	}
	return until
}

// pinned gives the blobs that waiting and running jobs need.
func (h *Hub) pinned(ctx context.Context) (map[string]bool, error) {
	jobs, err := h.queue.Live(ctx, "")
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(jobs))
	for n, j := range jobs {
		keys[n] = j.Key
	}
	pinned := map[string]bool{}
	err = h.queue.EachBody(ctx, keys, func(stored queue.StoredBody) error {
		body, err := stored.Read()
		if err != nil || len(body.Inputs) == 0 {
			return err // what cannot be read may be needed
		}
		in, err := files.DecodeInputs(body.Inputs)
		if err != nil {
			return err
		}
		pins, err := files.DecodePins(in.Pins)
		if err != nil {
			return err
		}
		for _, key := range pins.Keys() {
			pinned[key] = true
		}
		return nil
	})
	return pinned, err
}
