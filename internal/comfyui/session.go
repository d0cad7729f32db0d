package comfyui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// session holds what one connection has learned but the watcher not yet taken.
type session struct {
	status chan int // newest count only
	queue  chan Queue
	check  chan check
	info   chan string // hash
	failed chan error
	// answers says whether the server gives signs of life; newest only.
	answers chan bool
	// helpers are the goroutines of the session; each sends at most one value
	// that was not taken, so none of them ever waits for the watcher.
	helpers sync.WaitGroup

	// The rest belongs to the watcher's goroutine.
	heard     int // statuses so far
	remaining int
	reading   bool // a reading of the queue is under way
	stale     bool // and will be outdated
	// rest ends the pause after a look, nil while there is none; due says that a status
	// has come meanwhile.
	rest     <-chan time.Time
	due      bool
	checking bool
	fetching bool
	strikes  int // checks in a row that went badly
}

// check is the result of one sign of life.
type check struct {
	stats     Stats
	remaining int
	heard     int // statuses when it began
	err       error
}

// errSocketLost ends a session without saying anything about the server.
var errSocketLost = errors.New("event socket lost")

// session connects and follows the server until the connection is lost. lived
// says that the server was up.
func (w *watcher) session(ctx context.Context) (lived bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{
		status: make(chan int, 1), queue: make(chan Queue, 1), check: make(chan check, 1),
		info: make(chan string, 1), failed: make(chan error, 1), answers: make(chan bool, 1),
	}
	defer s.helpers.Wait()
	defer cancel()
	socket, remaining, err := w.connect(ctx)
	if err != nil {
		return false, err
	}
	defer socket.Close()
	s.helpers.Go(func() { s.follow(ctx, socket) }) // drains the socket whatever else goes on
	s.helpers.Go(func() {
		socket.KeepAlive(ctx, w.options.Patience, func() { replace(s.answers, true) }, func() { replace(s.answers, false) })
	})

	stats, err := w.stats(ctx)
	if err != nil {
		return false, err
	}
	w.up(stats, remaining)
	s.remaining = remaining
	w.look(ctx, s)
	w.fetchInfo(ctx, s)
	ticks := time.NewTicker(w.options.CheckEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case err := <-s.failed:
			return true, err
		case n := <-s.status:
			s.heard++
			s.remaining = n
			s.due = s.rest != nil
			// That it is free is news at once: other hubs may have a prompt for it.
			if freed := n == 0 && w.now.QueueRemaining > 0; freed || !s.due {
				w.look(ctx, s)
			}
		case answers := <-s.answers:
			w.answers(s, answers)
		case <-s.rest:
			s.rest = nil
			if s.due || s.reading {
				w.look(ctx, s)
			}
		case q := <-s.queue:
			s.reading = false
			w.seen(s, q)
			if s.stale {
				w.look(ctx, s)
			}
		case <-ticks.C:
			w.startCheck(ctx, s)
		case c := <-s.check:
			s.checking = false
			if err := w.checked(s, c); err != nil {
				return true, err
			}
			w.fetchInfo(ctx, s)
		case <-w.folders:
			w.foldersChanged = time.Now()
			w.fetchInfo(ctx, s)
		case hash := <-s.info:
			s.fetching = false
			if hash == "" {
				w.infoBegan = time.Time{} // a change is still to be read
			} else {
				w.infoRead = time.Now()
				next := w.now
				next.ObjectInfoHash = hash
				w.emit(next)
				w.fetchInfo(ctx, s) // a folder can have changed meanwhile
			}
		}
	}
}

// connect opens the event socket and waits for its first frame, the status.
func (w *watcher) connect(ctx context.Context) (*Socket, int, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.CallTimeout)
	defer cancel()
	socket, err := w.client.Dial(ctx, "comfyhub-watch-"+rand.Text())
	if err != nil {
		return nil, 0, err
	}
	for {
		frame, err := socket.Next(ctx)
		if err != nil {
			socket.Close()
			return nil, 0, err
		}
		if m, ok := ParseMessage(frame.Data); ok && !frame.Binary {
			if n, ok := m.QueueRemaining(); ok {
				return socket, n, nil
			}
		}
	}
}

func (w *watcher) stats(ctx context.Context) (Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.CallTimeout)
	defer cancel()
	return w.client.SystemStats(ctx)
}

func (w *watcher) up(stats Stats, remaining int) {
	next := w.now
	next.Up, next.Reason = true, ""
	next.QueueRemaining = remaining
	if w.replaced {
		w.replaced = false
		next.Boot = time.Now().UnixMilli()
		next.ObjectInfoHash = ""
	}
	next.takeStats(stats)
	w.options.Logger.Info("ComfyUI is up", "url", w.client.URL(), "version", stats.Version.String(), "gpu", next.GPU)
	w.emit(next)
}

// follow reads the socket and keeps the newest count for the watcher.
func (s *session) follow(ctx context.Context, socket *Socket) {
	for {
		frame, err := socket.Next(ctx)
		if err != nil {
			if !errors.Is(err, ErrSilent) { // which says that the server is down
				err = fmt.Errorf("%w: %w", errSocketLost, err)
			}
			s.failed <- err
			return
		}
		if frame.Binary {
			continue
		}
		m, ok := ParseMessage(frame.Data)
		if !ok {
			continue
		}
		if n, ok := m.QueueRemaining(); ok {
			replace(s.status, n)
		}
	}
}

// replace puts a value into a channel of one, instead of an older one that nobody took. Only
// one goroutine may do so.
func replace[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// answers notes whether the server gives signs of life. An idle one that gives none is not
// ready for work; one that works, or reads its folders for object_info, may only be late.
func (w *watcher) answers(s *session, does bool) {
	next := w.now
	switch {
	case does && !w.now.Up:
		w.options.Logger.Info("ComfyUI answers again", "url", w.client.URL())
		next.Up, next.Reason = true, ""
	case !does && w.now.Idle() && !s.fetching:
		w.options.Logger.Warn("ComfyUI does not answer", "url", w.client.URL())
		next.Up, next.Reason = false, plainReason(ErrSilent)
	default:
		return
	}
	w.emit(next)
}

// lookPause is the least time between two looks at the count. Where prompts take
// milliseconds, each would otherwise cost a reading of the queue and several reports
// that are outdated when they arrive.
const lookPause = 50 * time.Millisecond

// look acts on the newest count. An empty queue needs no question; else the queue
// tells who is in it. The count alone is passed on only if that takes long.
func (w *watcher) look(ctx context.Context, s *session) {
	s.rest, s.due = time.After(lookPause), false
	if s.remaining == 0 {
		s.stale = false
		next := w.now
		next.QueueRemaining, next.Foreign, next.Running, next.RunningMark = 0, 0, "", Mark{}
		w.emit(next)
		return
	}
	if s.reading {
		s.stale = true
		next := w.now
		next.QueueRemaining = s.remaining
		w.emit(next)
		return
	}
	s.reading, s.stale = true, false
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, w.options.CallTimeout)
		defer cancel()
		q, err := w.client.Queue(ctx)
		if err != nil && ctx.Err() == nil {
			w.options.Logger.Debug("reading the queue of ComfyUI", "url", w.client.URL(), "error", err)
		}
		s.queue <- q
	})
}

// seen takes a reading of the queue, unless the queue has run empty since.
func (w *watcher) seen(s *session, q Queue) {
	if s.remaining == 0 {
		return
	}
	next := w.now
	next.QueueRemaining = s.remaining
	if len(q.Running)+len(q.Pending) > 0 {
		next.Foreign = q.Foreign()
		next.Running, next.RunningMark = "", Mark{}
		if len(q.Running) > 0 {
			next.Running, next.RunningMark = q.Running[0].ID, q.Running[0].Mark
		}
	}
	w.emit(next)
}

func (w *watcher) startCheck(ctx context.Context, s *session) {
	if s.checking {
		return
	}
	s.checking = true
	heard := s.heard
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, w.options.CallTimeout)
		defer cancel()
		c := check{heard: heard}
		if c.stats, c.err = w.client.SystemStats(ctx); c.err == nil {
			c.remaining, c.err = w.client.QueueRemaining(ctx)
		}
		s.check <- c
	})
}

// checked judges a sign of life. One bad check can be a long garbage
// collection or a count that changed on the way; two in a row are not.
func (w *watcher) checked(s *session, c check) error {
	err := c.err
	if err == nil && c.heard == s.heard && c.remaining != s.remaining {
		err = fmt.Errorf("%w: it is silent though the queue moves", errSocketLost)
	}
	if err != nil {
		if s.strikes++; s.strikes > 1 || errors.Is(err, ErrHub) {
			return err
		}
		return nil
	}
	s.strikes = 0
	next := w.now
	next.takeStats(c.stats)
	w.emit(next)
	return nil
}

// fetchInfo reads object_info when it is not known or old. The slow call is
// not made beside a running prompt without need: that is a change in the model
// folders, or that there was no pause between prompts for long.
func (w *watcher) fetchInfo(ctx context.Context, s *session) {
	age := time.Since(w.infoRead)
	due := w.now.ObjectInfoHash == "" || w.foldersChanged.After(w.infoBegan) ||
		w.now.Idle() && age >= w.options.ObjectInfoEvery || age >= 3*w.options.ObjectInfoEvery
	if s.fetching || !due {
		return
	}
	s.fetching = true
	w.infoBegan = time.Now()
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*w.options.CallTimeout)
		defer cancel()
		body, hash, err := w.client.ObjectInfo(ctx, nil)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				w.options.Logger.Warn("reading object_info of ComfyUI", "url", w.client.URL(), "error", err)
			}
		case w.options.ObjectInfo != nil:
			w.options.ObjectInfo(hash, body)
		}
		s.info <- hash
	})
}
