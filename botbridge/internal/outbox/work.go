package outbox

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

const (
	// workShare is how much of a platform's rate may show that there is work.
	workShare = 0.1
	// workTimeout bounds such a call.
	workTimeout = 5 * time.Second
	// workRefused is how long a chat that refuses it is left alone.
	workRefused = 10 * time.Minute
)

// Work shows in a chat that the bridge is at work, if the platform can, nothing is being
// sent there, and no call waits for its turn. It returns at once and is never retried: call
// it again while there is work.
func (b *Outbox) Work(p platform.Platform, to platform.Chat, makes platform.Media) {
	worker, ok := p.(platform.Worker)
	if !ok {
		return
	}
	all, own := b.limiter(p), b.workLimiter(p)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	key := laneKey{p.Name(), to.ID}
	c := b.paceOf(key, p, to.Group)
	if l := b.lanes[key]; b.closed || now.Before(c.works) || l != nil && len(l.calls) > 0 || all.Tokens() < 0 || !own.AllowN(now, 1) || !all.AllowN(now, 1) {
		return
	}
	c.works = now.Add(worker.WorkLasts())
	b.wg.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, workTimeout)
		defer cancel()
		err := worker.Work(ctx, to, makes)
		b.o.Observe(p.Name(), "work", resultOf(err))
		pause := time.Duration(0)
		if wait := (*platform.WaitError)(nil); errors.As(err, &wait) {
			pause = min(max(wait.After, time.Second), maxWait)
		} else if platform.Permanent(err) {
			pause = workRefused
		}
		if pause > 0 {
			b.mu.Lock()
			c.works = time.Now().Add(pause)
			b.mu.Unlock()
		}
	})
}

// workLimiter returns the rate limiter of these calls of a whole platform.
func (b *Outbox) workLimiter(p platform.Platform) *rate.Limiter {
	l := b.limiterOf(p, p.Name()+"/work")
	if per := p.Limits().PerSecond; per > 0 && l.Limit() != rate.Limit(per*workShare) {
		l.SetLimit(rate.Limit(per * workShare))
	}
	return l
}
