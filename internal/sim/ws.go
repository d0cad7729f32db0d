package sim

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// inboundLimit is the largest frame that a client may send. A larger one closes
// the socket with 1009.
const inboundLimit = 4 << 20

// hub holds the sockets of a process and its one queue of outgoing messages.
type hub struct {
	proc *process

	mu      sync.Mutex
	wake    *sync.Cond
	sockets map[string]*socket
	order   []string           // sids in the order they were registered
	all     map[*socket]bool   // also those no longer registered
	flags   map[string]boolSet // client feature flags by sid
	outbox  []outgoing
	closed  bool
}

type boolSet map[string]bool

// outgoing is a frame for one sid, or for all if sid is nil.
type outgoing struct {
	sid    *string
	binary bool
	data   []byte
}

// socket is one connection. mu orders its first frames before published ones.
type socket struct {
	sid  string
	conn *websocket.Conn
	turn *semaphore.Weighted // belongs to whoever writes
}

func newHub(p *process) *hub {
	h := &hub{proc: p, sockets: map[string]*socket{}, all: map[*socket]bool{}, flags: map[string]boolSet{}}
	h.wake = sync.NewCond(&h.mu)
	go h.deliver()
	return h
}

// publish queues a JSON message for one sid, or for every socket if nil.
func (h *hub) publish(sid *string, msg *pyjson.Object) {
	h.enqueue(outgoing{sid: sid, data: pyjson.Marshal(msg)})
}

func (h *hub) publishBinary(sid *string, data []byte) {
	h.enqueue(outgoing{sid: sid, binary: true, data: data})
}

func (h *hub) enqueue(out outgoing) {
	if h.proc.srv.Fault().Mute {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outbox = append(h.outbox, out)
	h.wake.Signal()
}

// deliver is the only publisher. It sends messages one after another and waits for
// each socket, so one client that does not read blocks all others.
func (h *hub) deliver() {
	for {
		h.mu.Lock()
		for len(h.outbox) == 0 && !h.closed {
			h.wake.Wait()
		}
		if h.closed {
			h.mu.Unlock()
			return
		}
		out := h.outbox[0] // and stays there until it is sent: see Server.Quiet
		targets := h.targetsLocked(out.sid)
		h.mu.Unlock()
		for _, s := range targets {
			s.write(h.proc.life, out)
		}
		h.mu.Lock()
		h.outbox = h.outbox[1:]
		h.mu.Unlock()
	}
}

func (h *hub) targetsLocked(sid *string) []*socket {
	if sid != nil {
		if s, ok := h.sockets[*sid]; ok {
			return []*socket{s}
		}
		return nil
	}
	targets := make([]*socket, 0, len(h.order))
	for _, id := range h.order {
		targets = append(targets, h.sockets[id])
	}
	return targets
}

func (s *socket) write(ctx context.Context, out outgoing) {
	if s.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer s.turn.Release(1)
	s.writeInTurn(ctx, out)
}

func (s *socket) writeInTurn(ctx context.Context, out outgoing) {
	kind := websocket.MessageText
	if out.binary {
		kind = websocket.MessageBinary
	}
	_ = s.conn.Write(ctx, kind, out.data) // the reader notices a broken socket
}

func (h *hub) dropAll() {
	h.mu.Lock()
	ended := h.proc.life.Err() != nil
	if ended {
		h.closed = true
		h.wake.Broadcast()
	}
	open := make([]*socket, 0, len(h.all))
	for s := range h.all {
		open = append(open, s)
	}
	h.mu.Unlock()
	for _, s := range open {
		_ = s.conn.CloseNow()
	}
}

// supports reports whether the socket that is registered under sid announced a
// flag.
func (h *hub) supports(sid *string, flag string) bool {
	if sid == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flags[*sid][flag]
}

func (h *hub) register(s *socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(s.sid)
	h.sockets[s.sid] = s
	h.order = append(h.order, s.sid)
	h.all[s] = true
	h.flags[s.sid] = boolSet{}
}

// unregister forgets the sid of a closed socket, even if another socket has taken
// it over in the meantime. As with the real server, that one stays open and silent
// forever.
func (h *hub) unregister(s *socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, s)
	h.removeLocked(s.sid)
	delete(h.flags, s.sid)
}

func (h *hub) removeLocked(sid string) {
	if _, ok := h.sockets[sid]; !ok {
		return
	}
	delete(h.sockets, sid)
	for i, id := range h.order {
		if id == sid {
			h.order = append(h.order[:i:i], h.order[i+1:]...)
			break
		}
	}
}

// serveSocket is GET /ws.
func (p *process) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		dropPageHeaders(w)
		answerText(w, http.StatusBadRequest, "No WebSocket UPGRADE hdr: "+python.Repr(optionalText(r.Header.Get("Upgrade")))+
			"\n Can \"Upgrade\" only to \"WebSocket\".")
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the Origin check is a middleware
		CompressionMode:    websocket.CompressionContextTakeover,
	})
	if err != nil {
		p.srv.log.Debug("socket refused", "err", err)
		return
	}
	conn.SetReadLimit(inboundLimit)
	s := &socket{sid: query(r).Get("clientId"), conn: conn, turn: semaphore.NewWeighted(1)}
	if s.sid == "" {
		s.sid = strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	p.greet(s)
	p.listen(s)
	p.hub.unregister(s)
	_ = conn.CloseNow()
}

func optionalText(s string) pyjson.Value {
	if s == "" {
		return pyjson.Null{}
	}
	return pyjson.String(s)
}

// greet registers the socket and sends what every connection starts with. It has the turn, so that
// published frames stay behind the first status.
func (p *process) greet(s *socket) {
	if s.turn.Acquire(p.life, 1) != nil {
		return
	}
	defer s.turn.Release(1)
	p.hub.register(s)
	s.writeInTurn(p.life, outgoing{data: pyjson.Marshal(statusMessage(p.queue.remaining(), s.sid))})
	p.mu.Lock()
	active := p.active
	mine := p.client != nil && *p.client == s.sid
	p.mu.Unlock()
	if mine && active != "" {
		s.writeInTurn(p.life, outgoing{data: pyjson.Marshal(message("executing", dict("node", active)))})
	}
}

// listen reads until the socket closes. Only the first JSON object that a client
// sends is examined, and only if it announces feature flags.
func (p *process) listen(s *socket) {
	first := true
	for {
		kind, data, err := s.conn.Read(p.life)
		if err != nil {
			return
		}
		if kind != websocket.MessageText || !first || !p.feat.featureFlags {
			continue
		}
		v, err := pyjson.Parse(data)
		o, ok := v.(*pyjson.Object)
		if err != nil || !ok {
			continue
		}
		first = false
		if o.String("type") != "feature_flags" {
			continue
		}
		flags := boolSet{}
		for name, v := range o.Object("data").All() {
			flags[name] = v == pyjson.Bool(true)
		}
		p.hub.mu.Lock()
		if _, ok := p.hub.flags[s.sid]; ok {
			p.hub.flags[s.sid] = flags
		}
		p.hub.mu.Unlock()
		s.write(p.life, outgoing{data: pyjson.Marshal(message("feature_flags", p.serverFlags()))})
	}
}
