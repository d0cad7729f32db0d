package outbox

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// chatPace limits how fast messages go to one chat. It outlives the lane; otherwise
// short pauses would reset the limits.
type chatPace struct {
	each    *rate.Limiter
	group   *rate.Limiter // nil in private chats
	every   time.Duration // between progress edits of one message
	lastFor map[string]time.Time
	used    time.Time
	works   time.Time // until then it is shown that there is work
}

// paceIdle is how long a chat must be idle for its limits to be fully restored.
const paceIdle = 2 * time.Minute

// manyPaces is how many chats' limits are kept before idle ones are removed.
const manyPaces = 1000

// paceOf returns the limits of a chat; the caller holds mu.
func (b *Outbox) paceOf(key laneKey, p platform.Platform, group bool) *chatPace {
	c := b.paces[key]
	if c == nil {
		limits := p.Limits()
		c = &chatPace{each: rate.NewLimiter(rate.Inf, 1), every: limits.EditEvery, lastFor: map[string]time.Time{}}
		if limits.ChatEvery > 0 {
			c.each = rate.NewLimiter(rate.Every(limits.ChatEvery), 1)
		}
		if group {
			c.every = limits.GroupEditEvery
			if limits.GroupPerMinute > 0 {
				// A window of a minute: a burst of a quarter and the rest
				// spread over it stay below the limit in every minute.
				burst := max(1, limits.GroupPerMinute/4)
				c.group = rate.NewLimiter(rate.Limit(float64(limits.GroupPerMinute-burst)/60), burst)
			}
		}
		b.paces[key] = c
	}
	c.used = time.Now()
	return c
}

// prunePaces forgets chats that have been silent; the caller holds mu.
func (b *Outbox) prunePaces(now time.Time) {
	if len(b.paces) < manyPaces {
		return
	}
	for key, c := range b.paces {
		if b.lanes[key] == nil && now.Sub(c.used) > paceIdle {
			delete(b.paces, key)
		}
	}
}

// due returns when a message may be edited next.
func (c *chatPace) due(message string, now time.Time) time.Time {
	last, ok := c.lastFor[message]
	if !ok {
		return now.Add(c.every)
	}
	return last.Add(c.every)
}

func (c *chatPace) edited(message string, now time.Time) {
	for m, t := range c.lastFor {
		if now.Sub(t) > c.every {
			delete(c.lastFor, m)
		}
	}
	c.lastFor[message] = now
}

// turn waits until that many more messages may go to a chat. It returns false if
// ctx or the outbox ends first.
func (l *lane) turn(ctx context.Context, count int) bool {
	b := l.box
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	b.mu.Lock()
	c := b.paceOf(l.key, l.p, l.group)
	b.mu.Unlock()
	for range count {
		if c.group != nil && c.group.Wait(ctx) != nil {
			return false
		}
	}
	// An album counts as one message here: Telegram shows it as one, and a
	// pause of its whole size would hold up the chat.
	if count > 0 && c.each.Wait(ctx) != nil {
		return false
	}
	return b.limiter(l.p).Wait(ctx) == nil
}
