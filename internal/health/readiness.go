package health

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// readyFor is how long the answer to whether Redis takes jobs remains good: many may ask.
	readyFor = time.Second
	// readyWithin bounds how long Redis may take to answer.
	readyWithin = 5 * time.Second
)

// Readiness asks, as often as is useful and no more, whether Redis would take a job. A Redis that
// answers may take none: its disk or memory is full, it has become a replica, or its user may not
// run scripts.
type Readiness struct {
	Ask func(ctx context.Context) error

	mu     sync.Mutex
	err    error
	asked  time.Time     // when err became known
	asking chan struct{} // closed when somebody's question is answered; nil if nobody asks
}

// Check returns nil if Redis takes jobs. One caller asks for everybody who wants to know meanwhile.
func (r *Readiness) Check(ctx context.Context) error {
	for {
		r.mu.Lock()
		if !r.asked.IsZero() && time.Since(r.asked) < readyFor {
			defer r.mu.Unlock()
			return r.err
		}
		asking := r.asking
		if asking == nil {
			r.asking = make(chan struct{})
			r.mu.Unlock()
			return r.look(ctx)
		}
		r.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", redis.ErrUnavailable, ctx.Err())
		}
	}
}

// look asks. The answer is for others as well, so a caller that leaves does not end it.
func (r *Readiness) look(ctx context.Context) (err error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err, r.asked = err, time.Now()
		close(r.asking)
		r.asking = nil
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	if err := r.Ask(ctx); err != nil {
		return fmt.Errorf("Redis takes no jobs: %w", err)
	}
	return nil
}
