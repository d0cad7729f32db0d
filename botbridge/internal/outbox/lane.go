package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Pauses between attempts of a call that failed.
const (
	firstPause = 300 * time.Millisecond
	maxPause   = 30 * time.Second
	// uncertainTries is how often text is sent again if the platform did not say
	// whether it accepted it.
	uncertainTries = 3
	// maxWait bounds how long a platform can make us wait.
	maxWait = 10 * time.Minute
)

// lane is the goroutine of one chat. Its fields are guarded by Outbox.mu.
type lane struct {
	box   *Outbox
	p     platform.Platform
	key   laneKey
	group bool
	calls []*call
	edits map[string]*edit // by message
	woken chan struct{}
}

// call is one API call to make.
type call struct {
	to      platform.Chat
	kind    string
	mark    Mark // set if it must not be sent twice
	find    *search
	settled bool // doing it twice is as good as once: repeat it until its fate is known
	// settledFor is how long that holds after an attempt of unknown fate; 0 is for ever.
	settledFor time.Duration
	doubt      time.Time // of the first attempt of unknown fate
	// recall asks for what was sent since then, nil if that is not possible; ids are the messages.
	recall  func(ctx context.Context, in platform.Chat, since time.Time) error
	ids     *[]string
	counts  int // messages, for the rate limits; 0 if they do not apply
	timeout time.Duration
	lost    error // what becomes of it if the chat has moved; nil is the error itself
	do      func(ctx context.Context, to platform.Chat) error
	ctx     context.Context
	done    chan error
	given   time.Time
}

// edit is the latest state of a message that shows progress.
type edit struct {
	to   platform.Chat
	post platform.Post
	due  time.Time
}

// lane returns the lane of a chat, starting it if necessary; the caller holds mu.
func (b *Outbox) lane(p platform.Platform, to platform.Chat) *lane {
	key := laneKey{p.Name(), to.ID}
	l := b.lanes[key]
	if l == nil {
		l = &lane{box: b, p: p, key: key, group: to.Group, edits: map[string]*edit{}, woken: make(chan struct{}, 1)}
		b.lanes[key] = l
		b.wg.Go(l.run)
	}
	return l
}

func (l *lane) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// run sends what there is to send, and ends when there is no more.
func (l *lane) run() {
	for {
		next, edited, wait, ok := l.pick()
		switch {
		case !ok:
			return
		case next != nil:
			err := l.repeat(next)
			l.box.mu.Lock()
			l.calls = l.calls[1:]
			l.box.mu.Unlock()
			next.done <- err
		case edited != "":
			l.show(edited)
		default:
			l.sleep(wait)
		}
	}
}

// pick chooses what is next: a call, a message to edit, or how long to wait. It
// returns false if the lane has ended.
func (l *lane) pick() (next *call, edited string, wait time.Duration, ok bool) {
	b := l.box
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.ctx.Err() == nil && len(l.calls) > 0 {
		if first := l.calls[0]; first.ctx.Err() == nil {
			return first, "", 0, true
		}
		// The caller has given up.
		l.calls[0].done <- ErrNotSent
		l.calls = l.calls[1:]
	}
	if b.ctx.Err() != nil || len(l.edits) == 0 {
		for _, c := range l.calls {
			c.done <- ErrNotSent
		}
		delete(b.lanes, l.key)
		b.prunePaces(time.Now())
		return nil, "", 0, false
	}
	now := time.Now()
	wait = time.Hour
	for message, e := range l.edits {
		if until := e.due.Sub(now); until <= 0 {
			return nil, message, 0, true
		} else if until < wait {
			wait = until
		}
	}
	return nil, "", wait, true
}

func (l *lane) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.woken:
	case <-l.box.ctx.Done():
	}
}

// rest waits without accepting new calls: what is first stays first.
func (l *lane) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-l.box.ctx.Done():
	}
	return false
}

// repeat repeats a call until it succeeds or repeating is useless.
func (l *lane) repeat(c *call) error {
	pauses, uncertain := retry.New(firstPause, maxPause), 0
	for {
		if c.find.lost() {
			if there, err := l.find(c); there || err != nil {
				return err
			}
		}
		if !l.turn(c.ctx, c.counts) {
			return ErrNotSent
		}
		if c.settledFor > 0 && !c.doubt.IsZero() && time.Since(c.doubt) > c.settledFor {
			// An earlier attempt may have arrived, and the platform has forgotten its id.
			if there, err := l.recall(c); there || err != nil {
				return err
			}
			c.doubt = time.Time{}
		}
		err := l.attempt(c)
		l.box.o.Observe(l.p.Name(), c.kind, resultOf(err))
		var wait *platform.WaitError
		var moved *platform.MovedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &wait):
			if !l.rest(c.ctx, min(max(wait.After, time.Second), maxWait)) {
				return ErrNotSent
			}
			continue
		case errors.As(err, &moved):
			// Messages have other ids there, so the caller has to decide what to do.
			l.box.o.Moved(l.p.Name(), c.to.ID, moved.To)
			if c.lost != nil {
				return fmt.Errorf("%w: %w", c.lost, err)
			}
			return err
		case platform.Permanent(err), errors.Is(err, platform.ErrSource), errors.Is(err, ErrNotSent):
			return err
		case errors.Is(err, platform.ErrUncertain):
			if c.find.lost() && time.Since(c.given) < l.box.o.Patience {
				continue
			}
			if uncertain++; !c.settled && (c.mark != nil || uncertain == uncertainTries) {
				return err
			}
			if c.doubt.IsZero() {
				c.doubt = time.Now()
			}
		}
		if time.Since(c.given) > l.box.o.Patience {
			return fmt.Errorf("%w: %w", ErrGaveUp, err)
		}
		if !l.rest(c.ctx, pauses.Next()) {
			return ErrNotSent
		}
	}
}

// attempt makes a call once. It is not interrupted when the program stops or the
// caller gives up: an interrupted call may have taken effect.
func (l *lane) attempt(c *call) error {
	if c.mark != nil {
		after := ""
		if c.find != nil {
			after = c.find.Newest(c.to, c.find.post, "")
		}
		if err := c.mark(c.ctx, true, after); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		if c.find != nil {
			c.find.after = after
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.timeout)
	defer cancel()
	err := c.do(ctx, c.to)
	if c.mark != nil && err != nil && !errors.Is(err, platform.ErrUncertain) && (c.settledFor == 0 || c.doubt.IsZero()) {
		if c.find != nil {
			c.find.after = ""
		}
		if markErr := c.mark(context.WithoutCancel(c.ctx), false, ""); markErr != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, markErr)
		}
	}
	return err
}

// show makes one edit of progress. It is not repeated: there will be another.
func (l *lane) show(message string) {
	b := l.box
	if b.limiter(l.p).Tokens() < 0 {
		// Others are waiting for their turn with something more important.
		b.mu.Lock()
		if e := l.edits[message]; e != nil {
			e.due = time.Now().Add(time.Second)
		}
		b.mu.Unlock()
		return
	}
	if !l.turn(b.ctx, 1) {
		return
	}
	b.mu.Lock()
	e := l.edits[message]
	delete(l.edits, message)
	if len(l.calls) > 0 && e != nil {
		// Something more important arrived while we waited for our turn.
		e.due = time.Now().Add(time.Second)
		l.edits[message] = e
		e = nil
	}
	b.paceOf(l.key, l.p, l.group).edited(message, time.Now())
	b.mu.Unlock()
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.timeoutOf(e.post))
	defer cancel()
	err := l.p.Edit(ctx, e.to, message, e.post)
	b.o.Observe(l.p.Name(), "progress", resultOf(err))
	if wait := (*platform.WaitError)(nil); errors.As(err, &wait) {
		l.rest(b.ctx, min(max(wait.After, time.Second), maxWait))
	}
	if moved := (*platform.MovedError)(nil); errors.As(err, &moved) {
		b.o.Moved(l.p.Name(), e.to.ID, moved.To)
	}
}

func resultOf(err error) string {
	var wait *platform.WaitError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &wait):
		return "wait"
	case errors.Is(err, platform.ErrUncertain):
		return "uncertain"
	case platform.Permanent(err):
		return "refused"
	}
	return "retry"
}
