package overflow

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/comfyhub/comfyhub/internal/facade"
)

// device is the name of the GPU: how long jobs take there is learned apart from others.
const device = "serverless"

// Slot is a place at an endpoint for one run at a time. To hubs it is a ComfyUI server. It is safe for
// concurrent use.
type Slot struct {
	e    *Endpoint
	dir  string
	work sync.WaitGroup
	quit chan struct{}

	mu     sync.Mutex
	life   *life
	closed bool
}

// life is one life of a slot, which ends with a job that is given back. It is the backend of a facade.
type life struct {
	slot   *Slot
	server *facade.Server
	// over is closed when the job is to be given back, and ended when the slot is closed.
	over, ended chan struct{}
	leave       func()
}

// Open opens a slot, with its files in a folder of its own. The error is one of the disk.
func (e *Endpoint) Open(dir string) (*Slot, error) {
	s := &Slot{e: e, dir: dir, quit: make(chan struct{})}
	l, err := s.begin()
	if err != nil {
		return nil, err
	}
	s.work.Go(func() { s.run(l) })
	return s, nil
}

// begin begins a life.
func (s *Slot) begin() (*life, error) {
	l := &life{slot: s, over: make(chan struct{}), ended: s.quit}
	l.leave = sync.OnceFunc(func() { close(l.over) })
	server, err := facade.New(l, s.dir)
	if err != nil {
		return nil, err
	}
	l.server = server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = l
	return l, nil
}

// run lives one life after the other.
func (s *Slot) run(l *life) {
	for {
		select {
		case <-l.over:
		case <-s.quit:
		}
		s.mu.Lock()
		s.life = nil
		closed := s.closed
		s.mu.Unlock()
		l.server.Close()
		if closed {
			return
		}
		var err error
		if l, err = s.begin(); err != nil {
			s.e.o.Log.Error("a slot of an endpoint cannot go on", "endpoint", s.e.o.Name, "error", err)
			return
		}
	}
}

// Close ends the slot as if its machine had died. What it runs goes on at the endpoint.
func (s *Slot) Close() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if !was {
		close(s.quit)
	}
	s.work.Wait()
}

// Dial connects to the slot, whatever the address.
func (s *Slot) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	l := s.life
	s.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return l.server.Dial(ctx, network, address)
}

// ObjectInfo implements [facade.Backend].
func (l *life) ObjectInfo() []byte {
	if info := l.slot.e.o.ObjectInfo; len(info) > 0 {
		return info
	}
	return []byte("{}")
}

// IsOutput reports whether nodes of a class are output nodes.
func (l *life) IsOutput(class string) bool { return l.slot.e.o.IsOutput(class) }

// About implements [facade.Backend].
func (l *life) About() facade.About {
	return facade.About{Version: l.slot.e.o.Version, Device: device}
}
