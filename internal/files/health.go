package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"gocloud.dev/gcerrors"

	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// lookEvery is how often a storage that shows no fault is checked. One that hangs, or was
	// unmounted, shows none.
	lookEvery = 10 * time.Second
	// shortestLook and longestLook bound the pauses between two checks of a sick storage, and
	// shortestLook is the shortest between any two.
	shortestLook = 500 * time.Millisecond
	longestLook  = 5 * time.Second
	// answerWithin is how long a check may take, unless a test says otherwise.
	answerWithin = 15 * time.Second
	// maxTrial bounds what a check writes, in bytes: as much as the write that failed. A full disk
	// still takes a few bytes.
	maxTrial = 8 << 20
	// maxKept is how many outputs may wait for a storage in which a check finds no fault. With
	// more, it counts as sick all the same.
	maxKept = 16
)

// Health is what is known about a storage's state, as of the last check rather than the last
// request: a name that the storage cannot have does not make it sick.
type Health struct {
	backend *backend
	// doubt holds a token when something has failed since the last look.
	doubt chan struct{}
	// looking is the check under way, nil for none. Only Watch uses it.
	looking chan error
	looks   panics.Group
	within  time.Duration

	mu  sync.Mutex
	err error // nil while well
	// well is closed while err is nil.
	well chan struct{}
	// trial is how much the next check writes, in bytes; tried is the same for the check under way.
	trial, tried int64
	// mark is the content of the storage's mark, "" while that is not known.
	mark string
	// kept counts the outputs that are waiting for the storage.
	kept int
}

func newHealth(b *backend) *Health {
	h := &Health{backend: b, doubt: make(chan struct{}, 1), well: make(chan struct{}), within: answerWithin}
	close(h.well)
	return h
}

// Err returns why the storage cannot be used now, or nil. It is up to date only while Watch runs.
func (h *Health) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && h.kept >= maxKept {
		return fmt.Errorf("%w: it cannot take the outputs of %d runs", ErrStorage, h.kept)
	}
	return h.err
}

// Kept returns how many outputs of finished runs are waiting for the storage.
func (h *Health) Kept() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept
}

// keep counts an output that is waiting for the storage, or no longer is.
func (h *Health) keep(change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept += change
}

// wellness returns whether the storage was well at the last check, and a channel that is closed
// once it is.
func (h *Health) wellness() (well bool, again <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err == nil, h.well
}

// Mark returns the storage's mark, "" while that is not known.
func (h *Health) Mark() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mark
}

// Expect says which mark the storage must have. Before the first request it may be called with one
// known from earlier.
func (h *Health) Expect(mark string) { h.marked(mark) }

// marked notes the mark that the storage has from now on.
func (h *Health) marked(mark string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mark = mark
}

// doubtful notes a failure of the storage, in a write of size bytes or in something else.
func (h *Health) doubtful(size int64) {
	h.mu.Lock()
	h.trial = min(max(h.trial, size, 1), maxTrial)
	h.mu.Unlock()
	select {
	case h.doubt <- struct{}{}:
	default:
	}
}

// Watch checks the storage until ctx ends: now and then, at once when a request has failed, and
// every few seconds while it is sick. changed is called when it gets well or sick, with the reason.
func (h *Health) Watch(ctx context.Context, log func() *slog.Logger, changed func(err error)) {
	h.mu.Lock()
	h.trial = max(h.trial, 1) // a storage that cannot be written to is found at the start
	h.mu.Unlock()
	pauses := retry.New(shortestLook, longestLook)
	for {
		err := h.look(ctx, log())
		if ctx.Err() != nil {
			return
		}
		if h.found(err) {
			if err != nil {
				log().Error("the storage cannot be used; no jobs are given out until it can, and finished runs are kept", "error", err)
			} else {
				log().Info("the storage works again")
			}
			changed(err)
		}
		if err == nil {
			pauses.Reset()
			if !retry.Sleep(ctx, shortestLook) {
				return
			}
			select {
			case <-h.doubt:
			case <-time.After(lookEvery):
			case <-ctx.Done():
				return
			}
		} else if !pauses.Wait(ctx) {
			return
		}
	}
}

// found takes in the result of a check, and reports whether it is news.
func (h *Health) found(err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = (h.err == nil) != (err == nil)
	switch {
	case err == nil:
		if changed {
			close(h.well)
		}
	case changed:
		h.well = make(chan struct{})
	}
	if err != nil {
		h.trial = max(h.trial, h.tried) // the next check must do as much
	}
	h.tried = 0
	h.err = err
	return changed
}

// look finds out whether the storage works. One that hangs counts as sick: the file system of a
// server that is away may hang on to a request for ever, so there is never more than one check.
func (h *Health) look(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, h.within)
	defer cancel()
	if h.looking == nil {
		h.mu.Lock()
		trial := h.trial
		h.trial, h.tried = 0, trial
		h.mu.Unlock()
		done := make(chan error, 1)
		h.looking = done
		h.looks.Go(log, "looking at the storage", func() {
			done <- panics.Do(log, "looking at the storage", func() error { return h.try(ctx, trial) })
		})
	}
	select {
	case err := <-h.looking:
		h.looking = nil
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: it does not answer", ErrStorage)
	}
}

// try checks that this is still the same storage, and that it takes trial bytes.
func (h *Health) try(ctx context.Context, trial int64) error {
	if err := h.checkMark(ctx); err != nil || trial == 0 {
		return err
	}
	// Where the outputs go. If this hub is killed now, the sweep finds it.
	key := outputKey(uuid.NewString())
	from := io.LimitReader(rand.Reader, trial)
	if _, err := h.backend.put(ctx, key, from, writeOptions{}); err != nil {
		return err
	}
	bucket, err := h.backend.blobs(ctx, StepDelete)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if err := bucket.Delete(ctx, key); err != nil {
		return fmt.Errorf("%w: delete: %w", ErrStorage, err)
	}
	return nil
}

// maxMark bounds what is read of a mark, in bytes.
const maxMark = 100

// checkMark makes sure that the storage still has its mark. Without it, a file system that was
// unmounted would look like one that nobody has ever put a file in, and jobs would end because
// their files are gone.
func (h *Health) checkMark(ctx context.Context) error {
	h.mu.Lock()
	want := h.mark
	h.mu.Unlock()
	bucket, err := h.backend.blobs(ctx, StepRead)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	r, err := bucket.NewRangeReader(ctx, markKey, 0, maxMark, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		if want == "" {
			return nil
		}
		return fmt.Errorf("%w: its file %s is gone: is it mounted?", ErrStorage, markKey)
	}
	if err != nil {
		return fmt.Errorf("%w: mark: %w", ErrStorage, err)
	}
	mark, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%w: mark: %w", ErrStorage, err)
	}
	if want != "" && string(mark) != want {
		return fmt.Errorf("%w: another one is in its place", ErrStorage)
	}
	return nil
}

// isMarked reports whether the storage's mark is known.
func (h *Health) isMarked() bool {
	return h.Mark() != ""
}
