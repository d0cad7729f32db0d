package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// inboxBatch is how many events are read at once, inboxRoom how many may be in
	// memory: the rest waits in Redis.
	inboxBatch = 100
	inboxRoom  = 400
	// inboxTick is how often events are polled without a hint.
	inboxTick = time.Second
	// handleTries is how often handling an event is tried.
	handleTries = 5
)

// inbox handles the events of each chat in order, and chats concurrently.
type inbox struct {
	store  *state.Store
	handle func(context.Context, platform.Event) error
	log    *slog.Logger

	mu    sync.Mutex
	chats map[string][]platform.Event
	room  chan struct{} // one for each event in memory
	wg    sync.WaitGroup
}

func newInbox(store *state.Store, handle func(context.Context, platform.Event) error, log *slog.Logger) *inbox {
	return &inbox{
		store: store, handle: handle, log: log, chats: map[string][]platform.Event{}, room: make(chan struct{}, inboxRoom),
	}
}

// run handles events until ctx ends.
func (in *inbox) run(ctx context.Context) {
	defer in.wg.Wait()
	hints := in.store.Hints(ctx)
	tick := time.NewTicker(inboxTick)
	defer tick.Stop()
	var after int64
	for ctx.Err() == nil {
		events, last, err := in.store.Pending(ctx, after, inboxBatch)
		if err != nil && ctx.Err() == nil {
			in.log.Warn("cannot read what was said", "error", err)
		}
		after = last
		for _, doc := range events {
			var e platform.Event
			if err := json.Unmarshal(doc, &e); err != nil {
				in.log.Error("a stored event cannot be read", "error", err)
				continue
			}
			select {
			case in.room <- struct{}{}:
				in.add(ctx, e)
			case <-ctx.Done():
				return
			}
		}
		if len(events) == inboxBatch {
			continue
		}
		select {
		case _, open := <-hints:
			if !open {
				hints = nil
			}
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// add passes an event to its chat's worker, which lives while there is something to
// do.
func (in *inbox) add(ctx context.Context, e platform.Event) {
	key := conversation.ChatKey(e.Platform, e.Chat)
	in.mu.Lock()
	defer in.mu.Unlock()
	waiting, running := in.chats[key]
	in.chats[key] = append(waiting, e)
	if !running {
		in.wg.Go(func() { in.work(ctx, key) })
	}
}

func (in *inbox) work(ctx context.Context, key string) {
	for {
		in.mu.Lock()
		if len(in.chats[key]) == 0 || ctx.Err() != nil {
			delete(in.chats, key)
			in.mu.Unlock()
			return
		}
		e := in.chats[key][0]
		in.mu.Unlock()

		in.finish(ctx, e)

		in.mu.Lock()
		in.chats[key] = in.chats[key][1:]
		in.mu.Unlock()
		<-in.room
	}
}

// finish retries an event until it is handled. An event that keeps failing without
// an external cause is given up: it must not block its chat for ever.
func (in *inbox) finish(ctx context.Context, e platform.Event) {
	pauses := retry.New(200*time.Millisecond, 10*time.Second)
	for tries := 1; ctx.Err() == nil; {
		err := in.handle(ctx, e)
		if err == nil || tries == handleTries {
			if err != nil {
				in.log.Error("an event cannot be handled and is left out", "error", err)
			}
			if err = in.store.Handled(ctx, e.Key()); err == nil || errors.Is(err, state.ErrDeposed) {
				return
			}
		}
		if !errors.Is(err, state.ErrUnavailable) {
			tries++
		}
		pauses.Wait(ctx)
	}
}

// handle answers one event. A panic ends the handling of that event, not the
// program.
func (b *Bridge) handle(ctx context.Context, e platform.Event) (err error) {
	begin := time.Now()
	defer func() {
		if r := recover(); r != nil {
			b.log.Error("a panic while an event was handled", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			b.metrics.panics.Inc()
			b.apologise(ctx, e)
			err = nil
		}
		b.metrics.handling.Observe(time.Since(begin).Seconds())
	}()
	return b.talk.Handle(ctx, e)
}

func (b *Bridge) apologise(ctx context.Context, e platform.Event) {
	p := b.platforms[e.Platform]
	if p == nil || e.Kind != platform.Said {
		return
	}
	text := b.texts.Say(b.texts.Match(e.User.Language), "oops", locale.With{})
	if _, err := b.out.Send(ctx, p, e.Chat, platform.Post{Text: text, ReplyTo: e.Message.ID}); err != nil {
		b.log.Debug("cannot apologise", "error", err)
	}
}
