package ends

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/queue"
)

const (
	// confirmPause is the shortest time between two round trips that tell Redis about confirmed
	// ends. A client that moves to another hub within it may be told its last ends again.
	confirmPause = 25 * time.Millisecond
	// confirmBatch is how many ends one round trip reports.
	confirmBatch = 256
	// maxUnsaid bounds what is kept while Redis is away.
	maxUnsaid = 10_000
)

// Confirmations tells Redis which ends clients have confirmed: the first one at once, and those
// that follow in batches. What Redis cannot be told is kept.
type Confirmations struct {
	tell func(ctx context.Context, ends ...queue.Confirmed) error
	log  func() *slog.Logger

	mu     sync.Mutex
	unsaid []queue.Confirmed
	// telling means that a goroutine is reporting what is unsaid.
	telling bool
	work    sync.WaitGroup
	closing context.Context // ends with close
	stop    context.CancelFunc
}

// NewConfirmations reports to tell.
func NewConfirmations(tell func(context.Context, ...queue.Confirmed) error, log func() *slog.Logger) *Confirmations {
	c := &Confirmations{tell: tell, log: log}
	c.closing, c.stop = context.WithCancel(context.Background())
	return c
}

// add takes an end that was confirmed. It does not wait for Redis.
func (c *Confirmations) add(end queue.Confirmed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(end)
	if c.telling || c.closing.Err() != nil {
		return // close reports the rest
	}
	c.telling = true
	c.work.Go(c.run)
}

// keep adds ends to what is unsaid. The caller holds the lock.
func (c *Confirmations) keep(ends ...queue.Confirmed) {
	c.unsaid = append(c.unsaid, ends[:min(len(ends), maxUnsaid-len(c.unsaid))]...)
}

// run reports what is unsaid until there is nothing left, or Redis is away.
func (c *Confirmations) run() {
	for {
		ctx, cancel := context.WithTimeout(c.closing, 5*time.Second)
		more, err := c.batch(ctx)
		cancel()
		if err != nil {
			c.log().Debug("cannot note delivered ends", "error", err)
		}
		if more {
			select {
			case <-time.After(confirmPause):
			case <-c.closing.Done():
			}
		}
		c.mu.Lock()
		if err != nil || len(c.unsaid) == 0 && !more {
			c.telling = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// batch reports the first of what is unsaid. told says whether there was any.
func (c *Confirmations) batch(ctx context.Context) (told bool, err error) {
	c.mu.Lock()
	n := min(len(c.unsaid), confirmBatch)
	ends := slices.Clone(c.unsaid[:n])
	c.unsaid = slices.Delete(c.unsaid, 0, n)
	c.mu.Unlock()
	if n == 0 {
		return false, nil
	}
	if err := c.tell(ctx, ends...); err != nil {
		if errors.Is(err, queue.ErrUnavailable) || ctx.Err() != nil {
			c.mu.Lock()
			c.keep(ends...)
			c.mu.Unlock()
		}
		return false, err
	}
	return true, nil
}

// flush reports everything that is unsaid now.
func (c *Confirmations) flush(ctx context.Context) error {
	for {
		if more, err := c.batch(ctx); err != nil || !more {
			return err
		}
	}
}

// Close reports the rest. Anything added later stays unsaid.
func (c *Confirmations) Close(ctx context.Context) {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.work.Wait()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := c.flush(ctx); err != nil {
		c.log().Debug("cannot note delivered ends", "error", err)
	}
}
