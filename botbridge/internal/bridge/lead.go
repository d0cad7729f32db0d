package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// lead tries to become the leader and, while it is, does the leader's work. If
// Redis is unavailable nothing changes, because nobody else can take over then.
func (b *Bridge) lead(ctx context.Context) {
	var term int64
	end := func() {}
	defer func() { end() }()
	first := true
	for {
		asking, cancel := context.WithTimeout(ctx, b.store.Lease()/2)
		now, leads, err := b.store.Lead(asking, b.owner)
		cancel()
		switch {
		case err != nil:
			if ctx.Err() == nil {
				b.log.Warn("cannot reach the state", "error", err)
			}
		case leads && now == term:
		default:
			// A new term is a new start, even if it is our own again: what we
			// remember may be outdated.
			end()
			end, term = func() {}, 0
			b.leads.Store(leads)
			if leads {
				b.log.Info("this process is active", "term", now)
				term, end = now, b.begin(ctx)
			} else if first {
				b.log.Info("another process is active; standing by")
			}
		}
		first = false
		if !retry.Sleep(ctx, b.store.Lease()/4) {
			return
		}
	}
}

// begin starts a term and returns a function that ends it.
func (b *Bridge) begin(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() {
		for pauses := retry.New(time.Second, time.Second); ctx.Err() == nil; pauses.Wait(ctx) {
			err := errors.Join(b.runner.Resume(ctx), b.talk.Resume(ctx))
			if err == nil {
				break
			}
			b.log.Warn("cannot resume the requests", "error", err)
		}
		turns := conversation.WithBridge(ctx, ctx)
		newInbox(b.store, func(_ context.Context, e platform.Event) error { return b.handle(turns, e) }, b.log).run(ctx)
	})
	parts.Go(func() { b.talk.Refund(ctx) })
	for _, p := range b.platforms {
		parts.Go(func() {
			if err := p.Listen(ctx, b.admit); err != nil && ctx.Err() == nil {
				b.log.Error("a platform has stopped", "platform", p.Name(), "error", err)
			}
		})
	}
	return func() {
		cancel()
		parts.Wait()
		b.runner.Wait()
		b.talk.Wait()
	}
}
