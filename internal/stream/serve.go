package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// Serve upgrades a request to a WebSocket, which outlives the request: waiting for the socket's end
// would keep the request, the web server's buffers and the stack of all its handlers, which is more
// than the socket itself needs. The query `events=live` has the same effect as Ident.Live. The
// caller must check the Origin. ErrFull and ErrClosed are returned before anything is written;
// after any other error there is nothing left to answer.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, id Ident) error {
	party := partyOf(id)
	if err := s.reserve(party); err != nil {
		return err
	}
	if id.Client == "" {
		id.Client = mintSID()
	}
	// After the upgrade the client believes that it hears everything, so from here on none of it is
	// dropped.
	k := KeyOf(id.Requester)
	s.change(k, true, func(c *client) {
		c.extend()
		c.opening++
	})
	arrival := s.arrivals.Add(1)
	conn, err := websocket.Accept(leanWriter{w}, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the caller has checked the Origin by ComfyUI's rules
		// Each compressed message that is being read or written would take up to a megabyte for the
		// windows and tables of deflate.
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		s.change(k, false, (*client).opened)
		s.release(party)
		return fmt.Errorf("stream: %w", err)
	}
	conn.SetReadLimit(readLimit)
	sock := s.newSocket(conn, r)
	sock.inbound = inbound{conn: conn, budget: s.o.Budget, share: cmp.Or(id.Share, "tenant:"+id.Tenant), late: func() {
		sock.shut(websocket.StatusPolicyViolation, "an unfinished message")
	}}
	sock.sid, sock.caller, sock.arrival = id.Client, id.Caller, arrival
	sock.queue.ledger = s.ledgerOf(k)
	sock.received = func(mark, probe uint64) { s.received(k, mark, probe) }
	live := id.Live || wantsLive(r)
	go func() {
		defer s.release(party)
		if id.Until != nil {
			defer id.Until(func() { sock.shut(websocket.StatusPolicyViolation, "access has ended") })()
		}
		s.run(sock, k, live)
	}()
	return nil
}

func (s *Streams) newSocket(conn *websocket.Conn, r *http.Request) *socket {
	sock := &socket{
		conn:     conn,
		browser:  r.Header.Get("Origin") != "",
		opened:   time.Now(),
		interval: s.o.StatusInterval,
		silence:  s.o.KeepAlive,
		fanout:   &s.fanout,
		features: func() []byte { return s.o.Features() },
		observe:  s.o.Observe,
		wake:     make(chan struct{}, 1),
		settled:  make(chan struct{}),
		shutDone: make(chan struct{}),
	}
	sock.queue.limit = s.o.SocketBytes
	return sock
}

// run serves a socket until it ends, with two goroutines: one reads, one writes. The writer starts
// a third one for each ping.
func (s *Streams) run(sock *socket, k Key, live bool) {
	sock.tally = s.callers.join(sock.caller, sock)
	defer s.callers.leave(sock.caller, sock)
	s.fanout.join(k.Tenant, sock)
	defer s.fanout.leave(k.Tenant, sock)
	if !s.admit(sock) {
		s.change(k, false, (*client).opened)
		<-sock.shut(websocket.StatusGoingAway, "")
		return
	}
	defer s.dismiss(sock)
	defer sock.mute() // releases the files of results that were not written

	// Not the request's context: reloading the web server's configuration may end
	// it, and a socket outlives a reload.
	ctx, cancel := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	closed, inOrder, answers := false, false, false
	cut := false // by the client, and the writer met it first
	defer func() {
		if closed || cut { // taken now that the writer has stopped
			s.left(k, sock, inOrder, answers)
		}
		s.change(k, false, func(c *client) { c.detach(sock) })
	}()
	defer all.Wait()
	defer cancel()

	if s.transport == nil {
		s.arrive(ctx, sock, k, live)
	} else {
		all.Go(func() { s.arrive(ctx, sock, k, live) }) // asks the other hubs
	}
	sock.confirms = func() { all.Go(func() { sock.confirm(ctx) }) }
	all.Go(func() {
		err := sock.write(ctx) // returns when it has failed or must stop
		if ctx.Err() == nil {
			// Nothing more will be written, so the reader must stop too. It may not learn why.
			cut = cutByClient(err)
			sock.shut(websocket.StatusTryAgainLater, "cannot write")
		}
	})

	err := sock.read(ctx)
	inOrder, answers = leftInOrder(err), sock.closing()
	closed = inOrder || cutByClient(err) && !answers
	code := websocket.StatusNormalClosure
	if errors.Is(err, websocket.ErrMessageTooBig) {
		// The library has already sent this code. An orderly close lets the client
		// read it; cutting the connection would destroy it.
		code = websocket.StatusMessageTooBig
	}
	<-sock.shut(code, "")
}

// reserve takes a slot for a socket.
func (s *Streams) reserve(p party) error {
	l := s.limits.Load()
	own := l.TenantSockets(p.tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.away:
		return ErrCutOff
	}
	if err := s.slots.take(p, l.MaxSockets, own); err != nil {
		return err
	}
	s.serving.Add(1)
	return nil
}

func (s *Streams) release(p party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots.free(p)
	s.serving.Done()
}

// admit registers a socket. It returns false if the streams have been closed
// meanwhile.
func (s *Streams) admit(sock *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// Close ends all sockets with close frame 1001 (going away) and waits for them
// until ctx ends; then it cuts them. It refuses later sockets and drops everything
// that is kept.
func (s *Streams) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.close()
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
	s.leave(ctx)
	s.cancel()
	s.drop()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.network.Wait()
	return err
}

// drop frees all clients.
func (s *Streams) drop() {
	s.mu.Lock()
	all := s.clients
	s.clients = make(map[Key]*client)
	for _, c := range all {
		s.forget(c)
	}
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

// mintSID generates a client id in ComfyUI's form: 32 hex digits.
func mintSID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	return hex.EncodeToString(id[:])
}

// wantsLive reports whether the query asks for interleaved events.
func wantsLive(r *http.Request) bool {
	return aiohttp.ParseQuery(r.URL.RawQuery).Get("events") == "live"
}
