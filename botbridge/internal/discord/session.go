package discord

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// sessionName names the session in the memory; sessionKeep is longer than Discord
	// keeps one.
	sessionName = "session"
	sessionKeep = time.Hour
	// maxPending bounds the events that were received and are not stored yet. With so
	// many, the gateway's next one is not read.
	maxPending = 500
)

// kept is what is stored of a session.
type kept struct {
	ID  string `json:"id"`
	URL string `json:"url"`
	Seq int64  `json:"seq"`
}

// session is where we are in the gateway's events. A number counts as received only
// once its event, and all before it, are stored: a bridge that is killed before gets
// them again from the gateway.
type session struct {
	d       *Discord
	admit   platform.Admit
	pending chan pending

	mu         sync.Mutex
	id, url    string
	seq        int64 // stored
	read       int64 // received
	saved      time.Time
	identified time.Time
}

// pending is an event on its way into the store. ready returns it once its author has
// been told that it was heard; false if it does not concern the bridge.
type pending struct {
	session string
	seq     int64
	ready   func(ctx context.Context) (platform.Event, bool)
}

func newSession(d *Discord, admit platform.Admit) *session {
	return &session{d: d, admit: admit, pending: make(chan pending, maxPending)}
}

// load continues the session of an earlier process, if it is known.
func (s *session) load(ctx context.Context) {
	var k kept
	ok, err := s.d.o.Memory.Get(ctx, sessionName, &k)
	if err != nil || !ok || !s.d.trusted(k.URL) {
		return // a new session misses at most what was said meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.url, s.seq, s.read = k.ID, k.URL, k.Seq, k.Seq
}

func (s *session) resumeURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// resumable returns what continues the session. What was received and not stored stays
// in the queue, so the gateway need not repeat it.
func (s *session) resumable() (id string, seq int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.read, s.id != ""
}

// last is the number for a heartbeat; nil before the first event.
func (s *session) last() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == 0 {
		return nil
	}
	return s.read
}

// forget makes the next connection a new session.
func (s *session) forget(ctx context.Context) {
	s.mu.Lock()
	s.id, s.url, s.seq, s.read = "", "", 0, 0
	s.mu.Unlock()
	s.save(ctx)
}

// mayIdentify waits until another session may begin.
func (s *session) mayIdentify(ctx context.Context, every time.Duration) bool {
	s.mu.Lock()
	wait := time.Until(s.identified.Add(every))
	s.identified = time.Now().Add(max(0, wait))
	s.mu.Unlock()
	return wait <= 0 || retry.Sleep(ctx, wait)
}

// begin notes a new session.
func (s *session) begin(ctx context.Context, d json.RawMessage) {
	var ready struct {
		ID   string `json:"session_id"`
		URL  string `json:"resume_gateway_url"`
		User struct {
			ID string `json:"id"`
		} `json:"user"`
		Application struct {
			ID string `json:"id"`
		} `json:"application"`
	}
	if json.Unmarshal(d, &ready) != nil || !s.d.trusted(ready.URL) {
		return // it works, and cannot be continued
	}
	s.mu.Lock()
	s.id, s.url = ready.ID, strings.TrimRight(ready.URL, "/")
	s.mu.Unlock()
	s.d.me.Store(&identity{application: ready.Application.ID, user: ready.User.ID})
	s.d.o.Logger.Info("connected to Discord")
	s.save(ctx)
}

// dispatch takes an event of the gateway.
func (s *session) dispatch(ctx context.Context, f frame) error {
	s.mu.Lock()
	s.read = max(s.read, f.S)
	id := s.id
	s.mu.Unlock()
	p := pending{session: id, seq: f.S}
	switch f.T {
	case "READY":
		s.mu.Lock()
		s.seq, s.read = f.S, f.S // numbers begin again
		s.mu.Unlock()
		s.begin(ctx, f.D)
		return nil
	case "INTERACTION_CREATE":
		p.ready = s.d.interacted(ctx, f.D)
	case "MESSAGE_CREATE":
		p.ready = s.d.said(f.D, platform.Said)
	case "MESSAGE_UPDATE":
		p.ready = s.d.said(f.D, platform.Edited)
	}
	select {
	case s.pending <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admitAll stores events in their order until ctx ends.
func (s *session) admitAll(ctx context.Context) {
	for {
		select {
		case p := <-s.pending:
			s.admitOne(ctx, p)
		case <-ctx.Done():
			return
		}
	}
}

// admitOne stores an event, however long that takes.
func (s *session) admitOne(ctx context.Context, p pending) {
	if p.ready != nil {
		if e, ok := p.ready(ctx); ok {
			err := retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
				return s.admit(ctx, e)
			}, func(error) bool { return true })
			if err != nil {
				return
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	const rarely = 2 * time.Second
	s.mu.Lock()
	if p.session == s.id {
		s.seq = max(s.seq, p.seq)
	}
	// An event of no interest is numbered, too; it is no loss if it comes again.
	due := p.ready != nil || time.Since(s.saved) > rarely
	s.mu.Unlock()
	if due {
		s.save(ctx)
	}
}

// save stores where we are. If that fails, a later process begins a new session.
func (s *session) save(ctx context.Context) {
	s.mu.Lock()
	k := kept{s.id, s.url, s.seq}
	s.saved = time.Now()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var value any = k
	if k.ID == "" {
		value = nil
	}
	if err := s.d.o.Memory.Put(ctx, sessionName, value, sessionKeep); err != nil {
		s.d.o.Logger.Debug("cannot note where Discord's events are", "error", err)
	}
}
