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
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// Sockets are the open sockets of all clients: no more than the limits allow, each held until it has
// ended.
type Sockets struct {
	o         Options
	limits    *limits
	statuses  *Statuses
	clients   *registry
	ownership *ownership
	receipts  *receipts
	ctx       context.Context // ends with the grace period of Close
	// closing ends when Close begins.
	closing  context.Context
	stop     context.CancelFunc
	arrivals atomic.Uint64 // numbers the sockets

	mu      sync.Mutex
	open    map[*socket]struct{}
	slots   slots
	closed  bool
	away    bool // sockets are refused: other hubs serve them better
	serving sync.WaitGroup
}

func newSockets(ctx context.Context, o Options, s *Streams) *Sockets {
	closing, stop := context.WithCancel(context.Background())
	return &Sockets{
		o: o, limits: s.limits, statuses: s.Statuses, clients: s.clients, ownership: s.ownership, receipts: s.receipts,
		ctx: ctx, closing: closing, stop: stop, open: make(map[*socket]struct{}),
	}
}

// Serve upgrades a request to a WebSocket, which outlives the request: waiting for the socket's end
// would keep the request, the web server's buffers and the stack of all its handlers, which is more
// than the socket itself needs. The query `events=live` has the same effect as Ident.Live. The
// caller must check the Origin. ErrFull and ErrClosed are returned before anything is written;
// after any other error there is nothing left to answer.
func (s *Sockets) Serve(w http.ResponseWriter, r *http.Request, id Ident) error {
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
	var before, extended time.Time
	s.clients.change(k, true, func(c *client) {
		before = c.until
		c.extend()
		extended = c.until
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
		s.clients.change(k, false, func(c *client) {
			if c.until.Equal(extended) { // a request that is no handshake leaves nothing
				c.until = before
			}
			c.opened()
		})
		s.release(party)
		return fmt.Errorf("stream: %w", err)
	}
	conn.SetReadLimit(readLimit)
	sock := s.newSocket(conn, r)
	sock.inbound = inbound{conn: conn, budget: s.o.Budget, share: cmp.Or(id.Share, "tenant:"+id.Tenant), late: func() {
		sock.shut(websocket.StatusPolicyViolation, "an unfinished message")
	}}
	sock.sid, sock.caller, sock.arrival = id.Client, id.Caller, arrival
	sock.queue.ledger = s.clients.ledgerOf(k)
	sock.received = func(mark, probe uint64) { s.receipts.received(k, mark, probe) }
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

func (s *Sockets) newSocket(conn *websocket.Conn, r *http.Request) *socket {
	sock := &socket{
		conn:     conn,
		browser:  r.Header.Get("Origin") != "",
		opened:   time.Now(),
		interval: s.o.StatusInterval,
		silence:  s.o.KeepAlive,
		fanout:   &s.statuses.fanout,
		features: func() []byte { return s.o.Features() },
		wake:     make(chan struct{}, 1),
		settled:  make(chan struct{}),
		shutDone: make(chan struct{}),
	}
	sock.queue.limit = s.o.SocketBytes
	return sock
}

// run serves a socket until it ends, with two goroutines: one reads, one writes. The writer starts
// a third one for each ping.
func (s *Sockets) run(sock *socket, k Key, live bool) {
	sock.tally = s.statuses.callers.join(sock.caller, sock)
	defer s.statuses.callers.leave(sock.caller, sock)
	s.statuses.fanout.join(k.Tenant, sock)
	defer s.statuses.fanout.leave(k.Tenant, sock)
	if !s.admit(sock) {
		s.clients.change(k, false, (*client).opened)
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
			s.receipts.left(k, sock, inOrder, answers)
		}
		s.clients.change(k, false, func(c *client) { c.detach(sock) })
	}()
	defer all.Wait()
	defer cancel()

	if s.ownership.network.alone() {
		s.ownership.arrive(ctx, sock, k, live)
	} else {
		all.Go(func() { s.ownership.arrive(ctx, sock, k, live) }) // asks the other hubs
	}
	sock.confirms = func() { all.Go(func() { sock.confirm(ctx) }) }
	all.Go(func() {
		err := (&writer{socket: sock, observe: s.o.Observe}).run(ctx) // returns when it has failed or must stop
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
func (s *Sockets) reserve(p party) error {
	l := s.limits.now.Load()
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

func (s *Sockets) release(p party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots.free(p)
	s.serving.Done()
}

// admit registers a socket. It returns false if the streams have been closed
// meanwhile.
func (s *Sockets) admit(sock *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[sock] = struct{}{}
	return true
}

func (s *Sockets) dismiss(sock *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sock)
}

// close ends all sockets with close frame 1001 (going away) and waits for them until ctx ends; then
// cut cuts them. It refuses later ones.
func (s *Sockets) close(ctx context.Context, cut func()) error {
	s.mu.Lock()
	s.closed = true
	s.stop()
	for sock := range s.open {
		sock.shut(websocket.StatusGoingAway, "")
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		cut()
		<-done
		return ctx.Err()
	}
}

// Hold takes a socket's slot for a connection that is not a socket but is held open like one, such
// as a stream of server-sent events. The connection must end when the returned context does, which
// is when the caller's ends or Close is called. release must be called then. The errors are
// ErrFull, ErrTenantFull and ErrClosed.
func (s *Sockets) Hold(ctx context.Context, id Ident) (held context.Context, release func(), err error) {
	party := partyOf(id)
	if err := s.reserve(party); err != nil {
		return nil, nil, err
	}
	held, end := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, end)
	return held, func() {
		stop()
		end()
		s.release(party)
	}, nil
}

// sendAway closes all sockets and refuses new ones, or does so no more. The clients come back, to
// another hub if they, or something in front of the hubs, know several.
func (s *Sockets) sendAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if away && !s.away {
		s.o.Logger.Warn("this hub alone is cut off from the queue: clients are sent to other hubs", "sockets", len(s.open))
	}
	if s.away = away; !away {
		return
	}
	for sock := range s.open {
		sock.shut(websocket.StatusServiceRestart, "")
	}
}

// Count returns the number of open sockets.
func (s *Sockets) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// CountOf returns the number of open sockets of a tenant.
func (s *Sockets) CountOf(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.tenants[tenant]
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
