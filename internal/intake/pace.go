package intake

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/budget"
)

const (
	// owed is the amount of work after which a sender with more bodies in line
	// pauses for as long as it worked. Shorter pauses would be less precise than
	// timers.
	owed = 5 * time.Millisecond
	// stint is the amount of work on a loaded body after which it rests for
	// restRatio times as long, however few others there are.
	stint     = 2 * time.Millisecond
	restRatio = 1
	// unpaced is the size up to which an uncompressed body needs no turn.
	unpaced = 128 << 10
	// copyRate converts received bytes per second into work: the system copies a
	// body outside of its turn.
	copyRate = 256 << 20
	// A refused body costs its sender a pause of refusal times the work spent on
	// it, from minPause to maxPause.
	refusal  = 10
	minPause = 50 * time.Millisecond
	maxPause = time.Second
	// maxTurns bounds the bodies of one sender that wait for their turn.
	maxTurns = 1024
)

// pace makes each sender's large and compressed bodies take turns, in the order of
// their arrival. Otherwise a sender could use all processors by opening more
// connections. A sender with several such bodies gets at most half of a processor;
// a single body is not delayed.
type pace struct {
	mu sync.Mutex
	of map[string]*slot // by sender; only while it has such bodies
}

// slot is the right to work on a body of one sender.
type slot struct {
	bodies int // that need it from time to time
	taken  bool
	queue  []chan struct{} // closed when the slot is handed over
	debt   time.Duration   // work without a pause since there have been several
}

// join registers a body that needs the slot of its sender; part removes it.
func (p *pace) join(share string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]*slot{}
	}
	if p.of[share] == nil {
		p.of[share] = &slot{}
	}
	p.of[share].bodies++
}

func (p *pace) part(share string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[share].bodies--
	p.tidy(share)
}

// tidy forgets a sender that has no such bodies and owes no pause.
func (p *pace) tidy(share string) {
	if s := p.of[share]; s.bodies == 0 && !s.taken {
		delete(p.of, share)
	}
}

// enter waits for the slot of a sender. Errors: ErrBusy, those of ctx.
func (p *pace) enter(ctx context.Context, share string, wait time.Duration) error {
	p.mu.Lock()
	s := p.of[share]
	if !s.taken {
		s.taken = true
		p.mu.Unlock()
		return nil
	}
	if len(s.queue) >= maxTurns {
		p.mu.Unlock()
		return ErrBusy
	}
	ready := make(chan struct{})
	s.queue = append(s.queue, ready)
	p.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return p.giveUp(share, ready, ctx.Err())
	case <-timer.C:
		return p.giveUp(share, ready, ErrBusy)
	}
}

// giveUp removes a waiter, or hands on the slot it was given just now.
func (p *pace) giveUp(share string, ready chan struct{}, reason error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[share]
	if n := slices.Index(s.queue, ready); n >= 0 {
		s.queue = slices.Delete(s.queue, n, n+1)
		return reason
	}
	p.next(share)
	return reason
}

// leave releases the slot after some work, and after a pause.
func (p *pace) leave(share string, worked, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[share]
	if s.bodies > 1 {
		s.debt += worked
	}
	if s.debt >= owed {
		pause = max(pause, min(s.debt, maxPause))
		s.debt = 0
	}
	if pause == 0 {
		p.next(share)
		return
	}
	time.AfterFunc(pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next(share)
	})
}

// next hands the slot to the waiter that has waited longest.
func (p *pace) next(share string) {
	s := p.of[share]
	if len(s.queue) == 0 {
		s.taken = false
		p.tidy(share)
		return
	}
	close(s.queue[0])
	s.queue = s.queue[1:]
}

// turn is one body's use of its sender's slot.
type turn struct {
	in     *Intake
	share  string
	joined bool
	held   bool
	begin  time.Time
	copied int64         // received since the slot was released
	stints time.Duration // work before the last rest, since the slot was taken
	worked time.Duration // in total
	// refused means that the body was not worth the work, as far as that is known
	// after it has arrived.
	refused bool
}

// take waits for the slot. Errors: ErrBusy, those of ctx.
func (t *turn) take(ctx context.Context) error {
	if t.held {
		return nil
	}
	if !t.joined {
		t.joined = true
		t.in.pace.join(t.share)
	}
	if err := t.in.pace.enter(ctx, t.share, t.in.wait); err != nil {
		return err
	}
	t.held, t.begin = true, time.Now()
	return nil
}

// give releases the slot; refused means that the body was not worth the work. It
// does nothing for a turn without the slot.
func (t *turn) give(refused bool) {
	if !t.held {
		return
	}
	worked := t.stints + time.Since(t.begin) + time.Duration(t.copied)*time.Second/copyRate
	t.held, t.copied, t.stints = false, 0, 0
	t.worked += worked
	var pause time.Duration
	if refused {
		pause = min(max(refusal*t.worked, minPause), maxPause)
	}
	t.in.pace.leave(t.share, worked, pause)
}

// rest interrupts the work for a while if it has gone on for a stint. It keeps the
// slot, because the next holder would only do work of its own. It takes a real
// pause, because Gosched is not enough: with all processors busy, nobody checks
// what has arrived from the network.
func (t *turn) rest() {
	if !t.held {
		return
	}
	worked := time.Since(t.begin)
	if worked < stint {
		return
	}
	t.stints += worked
	time.Sleep(min(restRatio*worked, maxPause))
	t.begin = time.Now()
}

// end releases everything when the body is done with.
func (t *turn) end() {
	t.give(t.refused)
	if t.joined {
		t.joined = false
		t.in.pace.part(t.share)
	}
}

// paced holds the slot of a body's sender from one read to the next, while what was
// read is decompressed, counted and stored. It holds nothing while it waits for the
// sender, so that a slow body does not block another's turn.
type paced struct {
	inner io.Reader
	turn  *turn
	ctx   context.Context //nolint:containedctx // that of the request whose body this is
	free  int64           // bytes that need no slot
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	p.turn.give(false)
	n, err := p.inner.Read(b)
	p.free -= int64(n)
	p.turn.copied += int64(n)
	// At the end, too: there may be more to decompress of what came before.
	if p.free >= 0 || n == 0 && !errors.Is(err, io.EOF) {
		return n, err
	}
	if err := p.turn.take(p.ctx); err != nil {
		return 0, err
	}
	return n, err
}

// pacedBody is a request's body that takes turns; an uncompressed one only once it
// turns out to be large.
func pacedBody(r *http.Request, t *turn) io.Reader {
	p := &paced{inner: r.Body, turn: t, ctx: r.Context(), free: unpaced}
	if r.Header.Get("Content-Encoding") != "" {
		p.free = 0
	}
	return p
}

// Discard reads and drops at most limit bytes of a request's body, for a client
// that reads the answer only after it has sent everything. share is the sender.
func (in *Intake) Discard(r *http.Request, share string, limit int64) {
	t := &turn{in: in, share: share}
	defer t.end()
	budget.From(r.Context()).Relay()
	body := io.LimitReader(pacedBody(r, t), limit)
	part := make([]byte, chunk)
	for {
		if _, err := body.Read(part); err != nil {
			return
		}
	}
}
