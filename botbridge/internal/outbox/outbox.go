// Package outbox sends the bridge's messages, as fast as a platform allows and no
// faster.
//
// Each chat has its own lane: a goroutine that lives while there is something to
// send. A lane sends everything in the given order; only edits that show progress
// wait behind the rest, and for each message the latest replaces the others. A call
// that fails temporarily is repeated, with its files reopened. A call is repeated
// without knowing whether the platform accepted it only if a second message does no
// harm. Calls that have the same effect twice as once, such as edits, are repeated
// until their fate is known. A picture that may have arrived is looked for (find.go).
package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var (
	// ErrFull means that too much is already waiting for one chat.
	ErrFull = errors.New("outbox: too much waits for this chat")
	// ErrNotSent means that the outbox was stopped before the call was made.
	ErrNotSent = errors.New("outbox: not sent")
	// ErrGaveUp means that a call was repeated for as long as Options.Patience.
	ErrGaveUp = errors.New("outbox: given up")
)

// Options tune an Outbox.
type Options struct {
	// Logger receives permanent failures; never any text.
	Logger *slog.Logger
	// Observe is called for each attempt: the platform, the kind of call, the
	// result ("ok", "wait", "retry", "uncertain", "refused"). Optional.
	Observe func(platform, call, result string)
	// Moved is called when a platform says that a chat has a new id. Optional.
	Moved func(platform, from, to string)
	// CallTimeout bounds one attempt without files. Default: 30 s.
	CallTimeout time.Duration
	// Patience is how long a call is repeated. Default: 24 h.
	Patience time.Duration
	// Backlog is how many calls may wait for one chat. Default: 100.
	Backlog int
}

// Outbox sends. It is safe for concurrent use.
type Outbox struct {
	limiters
	o    Options
	ctx  context.Context
	stop context.CancelFunc

	mu     sync.Mutex
	lanes  map[laneKey]*lane
	paces  map[laneKey]*chatPace
	closed bool
	wg     sync.WaitGroup
}

// limiters keep the rates of whole platforms.
type limiters struct {
	guard sync.Mutex
	pace  map[string]*rate.Limiter // by platform, and for the answers of each
}

type laneKey struct{ platform, chat string }

// New makes an outbox.
func New(o Options) *Outbox {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Observe == nil {
		o.Observe = func(string, string, string) {}
	}
	if o.Moved == nil {
		o.Moved = func(string, string, string) {}
	}
	o.CallTimeout = cmp.Or(o.CallTimeout, 30*time.Second)
	o.Patience = cmp.Or(o.Patience, 24*time.Hour)
	o.Backlog = cmp.Or(o.Backlog, 100)
	b := &Outbox{limiters: limiters{pace: map[string]*rate.Limiter{}}, o: o, lanes: map[laneKey]*lane{}, paces: map[laneKey]*chatPace{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Close makes no further call, waits for those in progress, and fails the rest with
// ErrNotSent.
func (b *Outbox) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop()
	b.wg.Wait()
}

// Waiting returns the number of calls that have not been made.
func (b *Outbox) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lanes {
		n += len(l.calls) + len(l.edits)
	}
	return n
}

// Send posts and waits for the result. It returns the ids of the new messages. If a file
// cannot be read, it fails with platform.ErrSource, so that the chat is not held up; if the
// chat has a new id, with a platform.MovedError, as the message that is replied to does not
// exist there. If it is unknown whether the platform accepted the post, it is posted again
// a few times, so use it for text, which may come twice.
func (b *Outbox) Send(ctx context.Context, p platform.Platform, to platform.Chat, post platform.Post) ([]string, error) {
	return b.send(ctx, p, to, post, nil)
}

// SendOnce does the same, but what may have arrived is looked for before it is posted again,
// where the platform can be asked (see platform.Finder and platform.Recaller); elsewhere it fails with
// platform.ErrUncertain.
func (b *Outbox) SendOnce(ctx context.Context, p platform.Platform, to platform.Chat, post platform.Post, once Once) ([]string, error) {
	if once.Mark == nil {
		once.Mark = func(context.Context, bool, string) error { return nil }
	}
	return b.send(ctx, p, to, post, &once)
}

// send sends text if once is nil, else something that must not be sent twice.
func (b *Outbox) send(ctx context.Context, p platform.Platform, to platform.Chat, post platform.Post, once *Once) ([]string, error) {
	if post.ID == "" {
		post.ID = uuid.NewString() // for all attempts
	}
	var ids []string
	c := call{
		kind: "send", find: searchFor(p, post, once, &ids), counts: max(1, len(post.Files)), timeout: b.timeoutOf(post),
		settled: p.Limits().KnowsPosts, settledFor: p.Limits().KnowsPostsFor,
		do: func(ctx context.Context, to platform.Chat) (err error) {
			if ids, err = p.Send(ctx, to, post); err != nil {
				ids = nil
			}
			return err
		},
	}
	if once != nil {
		c.mark, c.doubt = once.Mark, once.Since
		c.recall, c.ids = recaller(p, post, once, &ids), &ids
	}
	err := b.do(ctx, p, to, c)
	return ids, err
}

// Edit replaces a message's content, after everything given before, and waits until
// that is done. Pending progress on the message is dropped. If the chat has a new id, the
// message is gone.
func (b *Outbox) Edit(ctx context.Context, p platform.Platform, to platform.Chat, message string, post platform.Post) error {
	b.Forget(p, to, message)
	return b.do(ctx, p, to, call{
		kind: "edit", counts: 1, settled: true, timeout: b.timeoutOf(post),
		lost: platform.ErrGone,
		do:   func(ctx context.Context, to platform.Chat) error { return p.Edit(ctx, to, message, post) },
	})
}

// Delete removes a message, after everything given before. If the chat has a new id, it can
// no longer be removed: that is refused.
func (b *Outbox) Delete(ctx context.Context, p platform.Platform, to platform.Chat, message string) error {
	b.Forget(p, to, message)
	return b.do(ctx, p, to, call{
		kind: "delete", settled: true, timeout: b.o.CallTimeout, lost: platform.ErrRefused,
		do: func(ctx context.Context, to platform.Chat) error { return p.Delete(ctx, to, message) },
	})
}

// Answer answers a button press, at once and without retrying: a late answer is useless.
func (b *Outbox) Answer(ctx context.Context, p platform.Platform, press, text string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	result := "ok"
	if err := b.answerLimiter(p).Wait(ctx); err != nil {
		result = "refused"
	} else if err := p.Answer(ctx, press, text); err != nil {
		result = "refused"
	}
	b.o.Observe(p.Name(), "answer", result)
}

// do puts a call into its lane and waits for its end. If ctx ends, the call is
// removed unless it is in progress.
func (b *Outbox) do(ctx context.Context, p platform.Platform, to platform.Chat, c call) error {
	c.to, c.ctx, c.done, c.given = to, ctx, make(chan error, 1), time.Now()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrNotSent
	}
	l := b.lane(p, to)
	if len(l.calls) >= b.o.Backlog {
		b.mu.Unlock()
		return ErrFull
	}
	l.calls = append(l.calls, &c)
	l.wake()
	b.mu.Unlock()
	return <-c.done
}

// Show edits a message when there is time for it: at most once per pause of the
// platform, and only with the latest content. It does not wait.
func (b *Outbox) Show(p platform.Platform, to platform.Chat, message string, post platform.Post) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	l := b.lane(p, to)
	if e := l.edits[message]; e != nil {
		e.post = post
		return
	}
	l.edits[message] = &edit{to: to, post: post, due: b.paceOf(l.key, p, to.Group).due(message, time.Now())}
	l.wake()
}

// Forget drops pending progress on a message.
func (b *Outbox) Forget(p platform.Platform, to platform.Chat, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lanes[laneKey{p.Name(), to.ID}]; l != nil {
		delete(l.edits, message)
	}
}

// timeoutOf allows for a slow connection: 100 kB/s.
func (b *Outbox) timeoutOf(post platform.Post) time.Duration {
	timeout := b.o.CallTimeout
	for _, f := range post.Files {
		timeout += time.Duration(f.Size/100_000) * time.Second
	}
	return timeout
}

// limiter returns the rate limiter of a whole platform.
func (b *limiters) limiter(p platform.Platform) *rate.Limiter { return b.limiterOf(p, p.Name()) }

// answerLimiter returns the limiter for answers to buttons. They are not messages and do
// not wait behind them: a late answer is useless.
func (b *limiters) answerLimiter(p platform.Platform) *rate.Limiter {
	return b.limiterOf(p, p.Name()+"/answers")
}

func (b *limiters) limiterOf(p platform.Platform, name string) *rate.Limiter {
	b.guard.Lock()
	defer b.guard.Unlock()
	l := b.pace[name]
	if l == nil {
		l = rate.NewLimiter(rate.Inf, 1)
		if per := p.Limits().PerSecond; per > 0 {
			l = rate.NewLimiter(rate.Limit(per), 1)
		}
		b.pace[name] = l
	}
	return l
}
