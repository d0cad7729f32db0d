package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/durable"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// openPatience is how long Start waits for Redis and the storage. After that a hub starts
	// without them, so that a configuration can always be loaded.
	openPatience = 5 * time.Second
	// checkWithin bounds one check of them.
	checkWithin = 15 * time.Second
	// shortestCheck and longestCheck bound the pauses between two checks.
	shortestCheck = 250 * time.Millisecond
	longestCheck  = 3 * time.Second
)

// markFile in the data folder has the mark of the storage that the hub last used.
const markFile = "storage-mark"

var errNoAnswer = errors.New("Redis or the storage does not answer")

// opening is the time between a hub's Start and the moment when Redis and the storage have both
// been seen to work. Until then the hub is in the gossip, but takes no requests, gives out no jobs,
// and takes over no runs: it cannot know yet whether this is the storage that the other hubs use,
// nor whether it has the keys.
type opening struct {
	log   func() *slog.Logger
	check func(ctx context.Context) error
	// enter makes the hub serve.
	enter func()

	// busy has the check that is under way. When the hub closes, it does not wait for one that
	// hangs in a file system.
	busy panics.Group

	mu  sync.Mutex
	err error // why the hub does not serve yet
}

// begin checks for the first time. It returns an error if that has found a mistake in the
// configuration. If Redis or the storage is away, it leaves the rest to wait.
func (o *opening) begin(ctx context.Context, wait func(f func())) error {
	result := o.look(ctx)
	select {
	case err := <-result:
		if err == nil {
			o.enter()
			return nil
		}
		if !isAway(err) {
			return err
		}
		result = nil
		o.waiting(err)
	case <-time.After(openPatience):
		o.waiting(errNoAnswer)
	case <-ctx.Done():
		return ctx.Err()
	}
	wait(func() { o.wait(ctx, result) })
	return nil
}

// wait checks until all is well. What began as an outage may turn out to be a mistake in the
// configuration, such as another fleet's storage. It is too late then to return an error, but the
// log and the readiness say so, and the mistake may be fixed without a restart.
func (o *opening) wait(ctx context.Context, result <-chan error) {
	pauses := retry.New(shortestCheck, longestCheck)
	for {
		if result == nil {
			if !pauses.Wait(ctx) {
				return
			}
			result = o.look(ctx)
		}
		select {
		case err := <-result:
			result = nil
			if err == nil {
				o.enter()
				return
			}
			if ctx.Err() == nil {
				o.waiting(err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look starts a check.
func (o *opening) look(ctx context.Context) <-chan error {
	result := make(chan error, 1)
	o.busy.Go(o.log(), "opening Redis and the storage", func() {
		ctx, cancel := context.WithTimeout(ctx, checkWithin)
		defer cancel()
		result <- panics.Do(o.log(), "opening Redis and the storage", func() error { return o.check(ctx) })
	})
	return result
}

// waiting notes why the hub does not serve, and logs each reason once.
func (o *opening) waiting(err error) {
	o.mu.Lock()
	news := o.err == nil || o.err.Error() != err.Error()
	o.err = err
	o.mu.Unlock()
	if news {
		o.log().Error("the hub accepts nothing until Redis and its storage work; it tries again by itself", "error", err)
	}
}

// reason returns why the hub does not serve yet, nil if it has not looked.
func (o *opening) reason() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// isAway reports whether an error may go away by itself. That includes a password that Redis
// refuses: Redis may load its users a moment after it starts.
func isAway(err error) bool {
	return errors.Is(err, files.ErrStorage) || errors.Is(err, redis.ErrUnavailable) || errors.Is(err, keyring.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded)
}

// checkParts makes sure that Redis and the storage work, that the other hubs use this storage, and
// that the hub has its keys.
func (h *Hub) checkParts(ctx context.Context) error {
	if _, err := h.db.Now(ctx); err != nil {
		return err
	}
	err := h.store.CheckShared(ctx, h.self)
	if errors.Is(err, files.ErrNotShared) {
		return fmt.Errorf("%w; give all of them the same storage", err)
	}
	if err != nil {
		return err
	}
	// Strangers can work together; the janitor reports it and deletes nothing.
	if err := h.bond.Meet(ctx); err != nil && !errors.Is(err, files.ErrStrangers) {
		return err
	}
	if err := explainKeys(h.ring.Refresh(ctx)); err != nil {
		return err
	}
	if err := h.adopt(ctx); err != nil {
		return err
	}
	h.without(h.keepMark(), "if the storage is not mounted at the next start, the hub takes that for another one")
	h.warn(ctx)
	return nil
}

// adopt signs what a version before the signatures has left in Redis.
func (h *Hub) adopt(ctx context.Context) error {
	if err := h.keys.Adopt(ctx); err != nil {
		return err
	}
	if err := h.operator.machines.Adopt(ctx); err != nil {
		return err
	}
	if known := h.gossip.pins; known != nil {
		return known.Adopt(ctx)
	}
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
	h.dispatch.Start()
	h.maintenance.Go(func() { h.storage.Health().Watch(maintenance, h.log, func(error) { h.dispatch.Wake() }) })
	h.maintenance.Go(func() { h.db.Clock().Follow(maintenance) })
	h.maintenance.Go(func() { h.stops.run(maintenance) })
	h.maintenance.Go(func() { h.scaler.Run(maintenance) })
	h.maintenance.Go(func() { h.keys.Follow(maintenance, h.log) })
	h.maintenance.Go(func() { h.recorder.Run(maintenance) })
	h.maintenance.Go(func() { h.janitor.Run(maintenance) })
	h.maintenance.Go(func() { h.known.Run(maintenance, h.inventory.Catalog) })
	h.maintenance.Go(func() { h.roster.Run(maintenance, h.dispatch.Instances.Names, h.inventory.Recalled) })
	h.maintenance.Go(func() { h.webUI.Run(maintenance, h.readAheadFrom) })
	h.maintenance.Go(func() { h.pages.Run(maintenance) })
	h.maintenance.Go(func() { h.ends.Watch(maintenance) })
	h.maintenance.Go(func() { h.watches.Run(maintenance) })
	h.maintenance.Go(func() { h.callbacks.Run(maintenance) })
	h.maintenance.Go(func() { h.ring.Follow(maintenance) })
	h.maintenance.Go(func() { h.inventory.Follow(maintenance, h.fleet) })
	for _, d := range h.disks {
		d.Watch(maintenance, h.log())
	}
	h.started.Store(true)
}

// recallMark tells the storage which mark it had when this hub last used it. Without it, a folder
// that is not mounted at the start would look like a new storage: the hub would put new keys into
// it, and files would count as lost. The default storage is in the data folder and there whenever
// that is.
func (h *Hub) recallMark() {
	if h.id.Storage == "" {
		return
	}
	body, err := os.ReadFile(h.markPath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	h.without(err, "if the storage is not mounted now, the hub takes that for another one")
	mark, ok := strings.CutPrefix(string(body), h.id.Storage+"\n")
	mark, whole := strings.CutSuffix(mark, "\n") // else a power cut has torn it
	if ok && whole && uuid.Validate(mark) == nil {
		h.storage.Health().Expect(mark)
	}
}

// keepMark remembers the storage's mark. A hub that is killed in between has the old one or none,
// and learns it again.
func (h *Hub) keepMark() error {
	if h.id.Storage == "" {
		return nil
	}
	body := h.id.Storage + "\n" + h.storage.Health().Mark() + "\n"
	if old, err := os.ReadFile(h.markPath()); err == nil && string(old) == body {
		return nil
	}
	return durable.WriteFile(h.markPath(), []byte(body))
}

// without says once what a hub lacks whose data folder fails: everything that it was told to keep
// is in Redis and in the storage, so it serves all the same.
func (h *Hub) without(err error, lacks string) {
	if err != nil {
		h.log().Warn("the data folder fails; the hub goes on without what it keeps there", "error", err, "meanwhile", lacks)
	}
}

func (h *Hub) markPath() string { return filepath.Join(h.id.Data, markFile) }

// warn tells the operator what is unsafe about the Redis in use.
func (h *Hub) warn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	texts, err := h.db.Warnings(ctx)
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
		return errors.Join(h.readiness.check(ctx), h.storage.Health().Err())
	}
	if why := h.opening.reason(); why != nil {
		return fmt.Errorf("%w: %w", config.ErrNotStarted, why)
	}
	return config.ErrNotStarted
}
