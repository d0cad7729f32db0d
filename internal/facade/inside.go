package facade

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// headTimeout bounds the reading of a request's header.
const headTimeout = time.Minute

// inside are the connections from within the process: no port is needed for them. The zero
// value has none.
type inside struct {
	mu     sync.Mutex
	closed bool
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	work   sync.WaitGroup
}

// Dial connects to the server from within the process, whatever the address. A server that
// is closed refuses, as a port does behind which nothing listens.
func (s *Server) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	conns, done := s.inside.open(s)
	refused := &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	if conns == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case conns <- theirs:
		return ours, nil
	case <-done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open begins to serve, unless it is closed.
func (i *inside) open(handler http.Handler) (conns chan<- net.Conn, done <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, nil
	}
	if i.server == nil {
		i.server = &http.Server{Handler: handler, ReadHeaderTimeout: headTimeout}
		i.conns, i.done = make(chan net.Conn), make(chan struct{})
		listener := pipes{i.conns, i.done}
		i.work.Go(func() { _ = i.server.Serve(listener) })
	}
	return i.conns, i.done
}

// close ends all connections.
func (i *inside) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.closed
	if i.closed = true; before || i.server == nil {
		return
	}
	close(i.done)
	_ = i.server.Close()
	i.work.Wait()
}

// pipes listens for connections from within the process.
type pipes struct {
	conns <-chan net.Conn
	done  <-chan struct{}
}

// Accept implements [net.Listener].
func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. What is closed is the channel.
func (pipes) Close() error { return nil }

// Addr implements [net.Listener].
func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "pipe"} }
