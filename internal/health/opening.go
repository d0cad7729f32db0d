package health

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

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

// ErrNoAnswer says that a check has not ended.
var ErrNoAnswer = errors.New("Redis or the storage does not answer")

// Opening is the time between a hub's Start and the moment when Redis and the storage have both
// been seen to work. Until then the hub is in the gossip, but takes no requests, gives out no jobs,
// and takes over no runs: it cannot know yet whether this is the storage that the other hubs use,
// nor whether it has the keys.
type Opening struct {
	Log   func() *slog.Logger
	Check func(ctx context.Context) error
	// Enter makes the hub serve.
	Enter func()

	// Checks has the check that is under way. When the hub closes, it does not wait for one that
	// hangs in a file system.
	Checks panics.Group

	mu  sync.Mutex
	err error // why the hub does not serve yet
}

// Begin checks for the first time. It returns an error if that has found a mistake in the
// configuration. If Redis or the storage is away, it leaves the rest to wait.
func (o *Opening) Begin(ctx context.Context, wait func(f func())) error {
	result := o.look(ctx)
	select {
	case err := <-result:
		if err == nil {
			o.Enter()
			return nil
		}
		if !isAway(err) {
			return err
		}
		result = nil
		o.waiting(err)
	case <-time.After(openPatience):
		o.waiting(ErrNoAnswer)
	case <-ctx.Done():
		return ctx.Err()
	}
	wait(func() { o.wait(ctx, result) })
	return nil
}

// wait checks until all is well. What began as an outage may turn out to be a mistake in the
// configuration, such as another fleet's storage. It is too late then to return an error, but the
// log and the readiness say so, and the mistake may be fixed without a restart.
func (o *Opening) wait(ctx context.Context, result <-chan error) {
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
				o.Enter()
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
func (o *Opening) look(ctx context.Context) <-chan error {
	result := make(chan error, 1)
	o.Checks.Go(o.Log(), "opening Redis and the storage", func() {
		ctx, cancel := context.WithTimeout(ctx, checkWithin)
		defer cancel()
		result <- panics.Do(o.Log(), "opening Redis and the storage", func() error { return o.Check(ctx) })
	})
	return result
}

// waiting notes why the hub does not serve, and logs each reason once.
func (o *Opening) waiting(err error) {
	o.mu.Lock()
	news := o.err == nil || o.err.Error() != err.Error()
	o.err = err
	o.mu.Unlock()
	if news {
		o.Log().Error("the hub accepts nothing until Redis and its storage work; it tries again by itself", "error", err)
	}
}

// Reason returns why the hub does not serve yet, nil if it has not looked.
func (o *Opening) Reason() error {
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
