package fakediscord

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// gateway is where the bot hears of everything.
type gateway struct {
	*place

	origin   string
	sessions map[string]*gatewaySession
	conns    map[*gatewayConn]bool
	// identified and resumed count how sessions began, beats the bot's signs of life.
	identified, resumed, beats int
}

// gatewaySession is a session of the bot, with all that it was told.
type gatewaySession struct {
	id      string
	intents int
	log     []json.RawMessage // frames; that of number n is at n-1
	conn    *gatewayConn
}

// gatewayConn is one connection. silent means that it stays open and nobody is there, begun
// that it has a session.
type gatewayConn struct {
	conn   *websocket.Conn
	silent bool
	begun  bool
	out    chan json.RawMessage
	end    context.CancelCauseFunc
}

type closing struct{ code websocket.StatusCode }

func (c closing) Error() string { return "closed by the test" }

// Sessions returns how many sessions were begun, and how many were continued.
func (f *gateway) Sessions() (identified, resumed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.identified, f.resumed
}

// Silence leaves the present connections open and says nothing on them any more, not
// even to heartbeats.
func (f *gateway) Silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.silent = true
	}
}

// Hangup closes all connections with a code. With 4009 the sessions have timed out.
func (f *gateway) Hangup(code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if code == 4009 {
		clear(f.sessions)
	}
	for c := range f.conns {
		c.end(closing{websocket.StatusCode(code)})
	}
}

// Reconnect asks the bot for another connection.
func (f *gateway) Reconnect() { f.tell(plainFrame(7, nil)) }

// Invalidate tells the bot that its session is not valid: it is forgotten, or can be continued
// on another connection.
func (f *gateway) Invalidate(resumable bool) {
	f.mu.Lock()
	if !resumable {
		clear(f.sessions)
	}
	f.mu.Unlock()
	f.tell(plainFrame(9, resumable))
}

// Beat asks the bot for a sign of life at once.
func (f *gateway) Beat() { f.tell(plainFrame(1, nil)) }

// Beats returns how many signs of life the bot has given.
func (f *gateway) Beats() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beats
}

// AwaitSession waits until the bot is connected.
func (f *gateway) AwaitSession(ctx context.Context) error {
	return f.await(ctx, func() bool {
		for _, s := range f.sessions {
			if s.conn != nil && !s.conn.silent {
				return true
			}
		}
		return false
	})
}

// await waits until a condition holds, which is asked with mu held.
func (f *place) await(ctx context.Context, holds func() bool) error {
	for {
		f.mu.Lock()
		ok, changed := holds(), f.changed
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// plainFrame is a message that is no event.
func plainFrame(op int, d any) map[string]any {
	return map[string]any{"op": op, "d": d, "s": nil, "t": nil}
}

// tell says something outside all sessions.
func (f *gateway) tell(frame any) {
	data, err := json.Marshal(frame)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.say(data)
	}
}

func (c *gatewayConn) say(data json.RawMessage) {
	if c.silent {
		return
	}
	select {
	case c.out <- data:
	default:
		c.end(closing{4000})
	}
}

// emit tells an event to all sessions, connected or not; the caller holds mu.
func (f *gateway) emit(kind string, d any) {
	for _, s := range f.sessions {
		s.emit(kind, d)
	}
}

// The intents that the fake knows: messages in servers, and in private chats.
const (
	guildMessages  = 1 << 9
	directMessages = 1 << 12
)

// emitMessage tells of a message to the sessions that want to know of those of its kind; the
// caller holds mu.
func (f *gateway) emitMessage(kind string, guild string, d any) {
	want := guildMessages
	if guild == "" {
		want = directMessages
	}
	for _, s := range f.sessions {
		if s.intents&want != 0 {
			s.emit(kind, d)
		}
	}
}

// emitOwn tells of a message of the bot's own, as Discord does: the bot sees all messages,
// and one that only one person sees without its server; the caller holds mu.
func (f *channels) emitOwn(kind string, m *Message) {
	guild := f.guilds[m.Channel]
	d := map[string]any{"id": m.ID, "channel_id": m.Channel}
	if kind != "MESSAGE_DELETE" {
		d = f.wire(m)
		if guild != "" && m.Only == "" {
			d["member"] = memberOf(nil)
		}
	}
	if guild != "" && m.Only == "" {
		d["guild_id"] = guild
	}
	f.emitMessage(kind, guild, d)
}

func (s *gatewaySession) emit(kind string, d any) {
	data, err := json.Marshal(map[string]any{"op": 0, "t": kind, "s": len(s.log) + 1, "d": d})
	if err != nil {
		return
	}
	s.log = append(s.log, data)
	if s.conn != nil {
		s.conn.say(data)
	}
}

// serveGateway is one connection.
func (f *gateway) serveGateway(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("v") != "10" || r.URL.Query().Get("encoding") != "json" {
		f.violate("the gateway is called without its version and encoding")
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	c := &gatewayConn{conn: conn, out: make(chan json.RawMessage, 1000), end: cancel}
	f.mu.Lock()
	f.conns[c] = true
	f.mu.Unlock()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer func() {
		f.mu.Lock()
		delete(f.conns, c)
		for _, s := range f.sessions {
			if s.conn == c {
				s.conn = nil
			}
		}
		f.touch()
		f.mu.Unlock()
	}()
	parts.Go(func() {
		select {
		case <-f.done:
			cancel(closing{1001})
		case <-ctx.Done():
		}
		if end, ok := errors.AsType[closing](context.Cause(ctx)); ok {
			_ = conn.Close(end.code, "")
		}
		conn.CloseNow()
	})
	parts.Go(func() { f.speak(ctx, c) })
	hello, _ := json.Marshal(plainFrame(10, map[string]any{"heartbeat_interval": f.o.Heartbeat.Milliseconds()}))
	c.out <- hello
	f.listen(ctx, c)
	cancel(nil)
}

func (f *gateway) speak(ctx context.Context, c *gatewayConn) {
	for {
		select {
		case data := <-c.out:
			if err := f.schema.frame(false, data); err != nil {
				f.violate("a message of the gateway: %v", err)
			}
			writing, cancel := context.WithTimeout(ctx, time.Minute)
			err := c.conn.Write(writing, websocket.MessageText, data)
			cancel()
			if err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// listen takes what the bot says until the connection ends.
func (f *gateway) listen(ctx context.Context, c *gatewayConn) {
	for {
		_, data, err := c.conn.Read(context.WithoutCancel(ctx))
		if err != nil {
			return
		}
		var frame struct {
			Op int             `json:"op"`
			D  json.RawMessage `json:"d"`
		}
		if json.Unmarshal(data, &frame) != nil {
			c.end(closing{4002})
			continue
		}
		if err := f.schema.frame(true, data); err != nil {
			f.violate("a message to the gateway: %v", err)
		}
		f.mu.Lock()
		if !c.silent {
			f.take(c, frame.Op, frame.D)
		}
		f.mu.Unlock()
	}
}

// take handles one message of the bot; the caller holds mu.
func (f *gateway) take(c *gatewayConn, op int, d json.RawMessage) {
	var said struct {
		Token   string `json:"token"`
		Session string `json:"session_id"`
		Seq     int    `json:"seq"`
		Intents *int   `json:"intents"`
	}
	_ = json.Unmarshal(d, &said)
	switch op {
	case 1:
		f.beats++
		c.say(json.RawMessage(`{"op":11,"d":null,"s":null,"t":null}`))
		return
	case 2, 6:
		if c.begun {
			c.end(closing{4005})
			return
		}
		if said.Token != Token {
			c.end(closing{4004})
			return
		}
	default:
		c.end(closing{4001})
		return
	}
	defer f.touch()
	if op == 6 {
		s := f.sessions[said.Session]
		switch {
		case s == nil:
			c.say(json.RawMessage(`{"op":9,"d":false,"s":null,"t":null}`))
			return
		case said.Seq > len(s.log):
			c.end(closing{4007})
			return
		}
		c.begun = true
		f.resumed++
		s.conn = c
		for _, missed := range s.log[said.Seq:] {
			c.say(missed)
		}
		s.emit("RESUMED", map[string]any{})
		return
	}
	if said.Intents == nil {
		c.end(closing{4013})
		return
	}
	f.identified++
	c.begun = true
	s := &gatewaySession{id: "session" + f.id(), intents: *said.Intents, conn: c}
	f.sessions[s.id] = s
	s.emit("READY", map[string]any{
		"v": 10, "user": userOf(BotUser), "guilds": []any{}, "session_id": s.id,
		"resume_gateway_url": "ws" + strings.TrimPrefix(f.origin, "http") + "/gateway",
		"application":        map[string]any{"id": Application, "flags": 0, "flags_new": "0"},
	})
}
