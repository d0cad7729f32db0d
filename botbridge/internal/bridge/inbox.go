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

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// inboxBatch is how many events are listed at once.
	inboxBatch = 500
	// inboxTick is how often events are polled without a hint.
	inboxTick = time.Second
	// handleTries is how often handling an event is tried.
	handleTries = 5
)

// widths are how many events of each kind are handled at the same time. A group that
// is held up by its platform's pace takes nothing from private chats, and neither
// keeps a button waiting.
func widths() map[conversation.Care]int {
	return map[conversation.Care]int{conversation.Button: 100, conversation.Private: 200, conversation.Group: 100}
}

// inbox handles the events of each lane in order, and lanes concurrently. Only names
// are kept in memory; an event is read when it is its turn. Lanes take turns: each
// handles one event and goes to the end of the line.
type inbox struct {
	store  *state.Store
	handle func(context.Context, platform.Event) error
	log    *slog.Logger

	mu    sync.Mutex
	lanes map[string][]string // keys of events
	turns map[conversation.Care]*semaphore.Weighted
	wg    sync.WaitGroup
}

func newInbox(store *state.Store, handle func(context.Context, platform.Event) error, log *slog.Logger) *inbox {
	in := &inbox{
		store: store, handle: handle, log: log, lanes: map[string][]string{}, turns: map[conversation.Care]*semaphore.Weighted{},
	}
	for care, width := range widths() {
		in.turns[care] = semaphore.NewWeighted(int64(width))
	}
	return in
}

// run handles events until ctx ends.
func (in *inbox) run(ctx context.Context) {
	defer in.wg.Wait()
	hints := in.store.Inbox.Hints(ctx)
	tick := time.NewTicker(inboxTick)
	defer tick.Stop()
	var after int64
	for ctx.Err() == nil {
		events, last, err := in.store.Inbox.Pending(ctx, after, inboxBatch)
		if err != nil && ctx.Err() == nil {
			in.log.Warn("cannot read the waiting events", "error", err)
		}
		after = last
		for _, e := range events {
			in.add(ctx, e)
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

// add passes an event to its lane's worker, which lives while there is something to
// do.
func (in *inbox) add(ctx context.Context, e state.Waiting) {
	in.mu.Lock()
	defer in.mu.Unlock()
	waiting, running := in.lanes[e.Lane]
	in.lanes[e.Lane] = append(waiting, e.Key)
	if !running {
		in.wg.Go(func() { in.work(ctx, e.Lane) })
	}
}

func (in *inbox) work(ctx context.Context, lane string) {
	turns := in.turns[conversation.CareOf(lane)]
	for {
		in.mu.Lock()
		if len(in.lanes[lane]) == 0 || ctx.Err() != nil {
			delete(in.lanes, lane)
			in.mu.Unlock()
			return
		}
		key := in.lanes[lane][0]
		in.mu.Unlock()

		// The semaphore serves in the order of asking.
		if turns.Acquire(ctx, 1) == nil {
			in.finish(ctx, key)
			turns.Release(1)
		}

		in.mu.Lock()
		in.lanes[lane] = in.lanes[lane][1:]
		in.mu.Unlock()
	}
}

// read reads an event, however long that takes. It returns false for one that cannot
// be handled.
func (in *inbox) read(ctx context.Context, key string) (e platform.Event, ok bool) {
	err := retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
		return in.store.Inbox.Event(ctx, key, &e)
	}, func(err error) bool {
		unreadable := errors.As(err, new(*json.SyntaxError)) || errors.As(err, new(*json.UnmarshalTypeError))
		return !unreadable && !errors.Is(err, state.ErrNotFound)
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, state.ErrNotFound) {
		in.log.Error("skipping a stored event that cannot be read", "error", err)
	}
	return e, err == nil
}

// Pauses between attempts to read or handle an event.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 10 * time.Second
)

// finish retries an event until it is handled. An event that keeps failing without
// an external cause is given up: it must not block its chat for ever.
func (in *inbox) finish(ctx context.Context, key string) {
	e, ok := in.read(ctx, key)
	pauses := retry.New(firstPause, maxPause)
	for tries := 1; ctx.Err() == nil; {
		var err error
		if ok {
			err = in.handle(ctx, e)
		}
		// A payment is never given up.
		if err == nil || tries == handleTries && e.Kind != platform.Paid {
			if err != nil {
				in.log.Error("skipping an event that cannot be handled", "error", err)
			}
			if err = in.store.Inbox.Handled(ctx, key); err == nil || errors.Is(err, state.ErrDeposed) {
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
			if err = nil; e.Kind == platform.Paid {
				err = errors.New("a panic while a payment was handled")
			}
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
