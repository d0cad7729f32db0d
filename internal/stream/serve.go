package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// errNotWebSocket is a request without an upgrade; it has been answered.
var errNotWebSocket = errors.New("stream: not a WebSocket request")

// Serve upgrades a request to a WebSocket and blocks until it ends. The query
// `events=live` has the effect of Ident.Live. The Origin is the caller's to
// check. ErrFull and ErrClosed come before anything was written; after any
// other error there is nothing left to answer. A client that leaves is no
// error.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, id Ident) error {
	if !hasToken(r.Header, "Upgrade", "websocket") {
		refuse(w, r)
		return errNotWebSocket
	}
	if err := s.reserve(); err != nil {
		return err
	}
	defer s.serving.Done()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the caller has checked the Origin by ComfyUI's rules
		CompressionMode:    websocket.CompressionNoContextTakeover,
	})
	if err != nil {
		s.giveBack()
		return fmt.Errorf("stream: %w", err)
	}
	conn.SetReadLimit(readLimit)
	if id.Client == "" {
		id.Client = mintSID()
	}
	return s.run(s.newSocket(conn, w, r, id), id, id.Live || wantsLive(r))
}

func (s *Streams) newSocket(conn *websocket.Conn, w http.ResponseWriter, r *http.Request, id Ident) *socket {
	k := Key{Tenant: id.Tenant, Client: id.Client}
	sock := &socket{
		conn: conn, sid: id.Client, caller: id.Caller,
		browser:  r.Header.Get("Origin") != "",
		deflate:  w.Header().Get("Sec-WebSocket-Extensions") != "",
		opened:   time.Now(),
		interval: s.o.StatusInterval,
		silence:  s.o.KeepAlive,
		features: func() []byte { return s.o.Features() },
		wake:     make(chan struct{}, 1),
		pings:    make(chan struct{}, 1),
		settled:  make(chan struct{}),
		shutDone: make(chan struct{}),
	}
	sock.queue.limit = s.o.SocketBytes
	sock.received = func(mark uint64) { s.received(k, sock, mark) }
	return sock
}

// run lets a socket live: one goroutine reads, one writes, one pings.
func (s *Streams) run(sock *socket, id Ident, live bool) error {
	k := Key{Tenant: id.Tenant, Client: id.Client}
	sock.tally = s.callers.join(sock.caller, sock)
	defer s.callers.leave(sock.caller, sock)
	if !s.admit(sock) {
		<-sock.shut(websocket.StatusGoingAway, "")
		return ErrClosed
	}
	defer s.dismiss(sock)

	// Not the request's context: it may end with a reload of the web server's
	// configuration, which a socket outlives.
	ctx, cancel := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()

	s.change(k, true, func(c *client) { c.attach(sock, live) })
	defer s.change(k, false, func(c *client) { c.detach(sock) })

	all.Go(func() {
		if err := sock.write(ctx); err != nil && ctx.Err() == nil {
			// Nobody will read from here on; the reader must learn of it.
			sock.shut(websocket.StatusTryAgainLater, "cannot write")
		}
	})
	all.Go(func() { sock.confirm(ctx) })

	err := sock.read(ctx)
	code := websocket.StatusNormalClosure
	if errors.Is(err, websocket.ErrMessageTooBig) {
		// The library has sent this code; closing in order lets the client
		// read it, where cutting the connection would destroy it.
		code = websocket.StatusMessageTooBig
	}
	<-sock.shut(code, "")
	return nil
}

// received takes the receipt of a socket, if it is still the client's own.
func (s *Streams) received(k Key, sock *socket, mark uint64) {
	var prompts []string
	s.change(k, false, func(c *client) {
		if c.socket == sock {
			prompts = c.line.confirm(mark)
		}
	})
	for _, prompt := range prompts {
		s.o.Delivered(k, prompt)
	}
}

// reserve takes a place for a socket.
func (s *Streams) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if int64(len(s.sockets)+s.opening) >= s.maxSockets.Load() {
		return ErrFull
	}
	s.opening++
	s.serving.Add(1)
	return nil
}

func (s *Streams) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
}

// admit puts a socket into its place. It reports false when the streams were
// closed meanwhile.
func (s *Streams) admit(sock *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if s.closed {
		return false
	}
	s.sockets[sock] = struct{}{}
	return true
}

func (s *Streams) dismiss(sock *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, sock)
}

// Close ends all sockets with a close frame 1001 (going away) and waits for
// them until ctx ends; then they are cut. It refuses later sockets and drops
// everything that is kept.
func (s *Streams) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for sock := range s.sockets {
		sock.shut(websocket.StatusGoingAway, "")
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.cancel()
		<-done
	}
	s.cancel()
	s.drop()
	return err
}

// drop frees all clients.
func (s *Streams) drop() {
	s.mu.Lock()
	all := s.clients
	s.clients = make(map[Key]*client)
	s.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		c.line.clear()
		c.gone = true
		if c.alarm != nil {
			c.alarm.Stop()
		}
		c.mu.Unlock()
	}
}

// refuse answers a request without an upgrade as aiohttp does.
func refuse(w http.ResponseWriter, r *http.Request) {
	asked := r.Header.Get("Upgrade")
	if asked == "" {
		asked = "None"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, "No WebSocket UPGRADE hdr: "+asked+"\n Can \"Upgrade\" only to \"WebSocket\".")
}

// hasToken reports whether a header's comma-separated values have token.
func hasToken(h http.Header, name, token string) bool {
	for _, value := range h.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
