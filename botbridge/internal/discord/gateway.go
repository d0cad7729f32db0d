package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// maxFrame bounds a message of the gateway, in bytes.
	maxFrame = 16 << 20
	// helloTimeout bounds the begin of a connection, and each write to it.
	helloTimeout = 20 * time.Second
	firstPause   = 200 * time.Millisecond
	maxPause     = 30 * time.Second
	// wrongTokenPause is how long a token that Discord does not know is not tried again.
	wrongTokenPause = time.Minute
)

// intents are the events that are asked for: messages in servers and private chats.
// Interactions come in any case. What people write is visible only where they name the
// bot, reply to it, or write to it alone, which is all that is read.
const intents = 1<<9 | 1<<12

// Opcodes of the gateway.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opHeartbeatAck   = 11
)

// frame is one message of the gateway.
type frame struct {
	Op int             `json:"op"`
	S  int64           `json:"s,omitempty"`
	T  string          `json:"t,omitempty"`
	D  json.RawMessage `json:"d"`
}

// errRefused means that Discord does not let the bot connect as it is.
var errRefused = errors.New("Discord refuses the connection")

// errZombie means that a connection is open and nobody is at its other end.
var errZombie = errors.New("the connection has gone silent")

// Listen implements platform.Platform: it keeps a connection to the gateway.
func (d *Discord) Listen(ctx context.Context, admit platform.Admit) error {
	if err := d.sessions.Acquire(ctx, 1); err != nil {
		return err
	}
	defer d.sessions.Release(1)
	d.listens.Store(time.Now().UnixNano())
	defer d.listens.Store(0)
	s := newSession(d, admit)
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.admitAll(ctx) })
	parts.Go(func() { d.register(ctx) })
	s.load(ctx)
	pauses := retry.New(firstPause, maxPause)
	for ctx.Err() == nil {
		begun := time.Now()
		err := d.connect(ctx, s)
		if ctx.Err() != nil {
			break
		}
		d.trouble.Store(&err)
		if time.Since(begun) > maxPause {
			pauses.Reset() // it worked for a while
		}
		wait := pauses.Next()
		if after := (*platform.WaitError)(nil); errors.As(err, &after) {
			wait = max(wait, after.After)
		}
		if errors.Is(err, ErrToken) || errors.Is(err, errRefused) {
			wait = max(wait, wrongTokenPause)
		}
		d.o.Logger.Warn("the connection to Discord's gateway has ended", "error", err, "again_in", wait)
		retry.Sleep(ctx, wait)
	}
	return ctx.Err()
}

// connect keeps one connection and returns why it has ended.
func (d *Discord) connect(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := d.whoami(ctx); err != nil {
		return err
	}
	address, err := d.gateway(ctx, s)
	if err != nil {
		return err
	}
	dialing, done := context.WithTimeout(ctx, helloTimeout)
	defer done()
	conn, _, err := websocket.Dial(dialing, address+"/?v=10&encoding=json", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: d.rest.http.Transport}, HTTPHeader: http.Header{"User-Agent": {userAgent}},
	})
	if err != nil {
		return fmt.Errorf("the gateway cannot be reached: %w", hide(err))
	}
	// Closing it with a status that means an end would end the session, too.
	defer conn.CloseNow()
	conn.SetReadLimit(maxFrame)
	l := &line{d: d, s: s, conn: conn}
	return l.run(ctx, cancel)
}

// gateway returns where to connect: where the session is, or where Discord says.
func (d *Discord) gateway(ctx context.Context, s *session) (string, error) {
	if at := s.resumeURL(); at != "" {
		return at, nil
	}
	var told struct {
		URL     string `json:"url"`
		Session struct {
			Remaining int   `json:"remaining"`
			Reset     int64 `json:"reset_after"`
		} `json:"session_start_limit"`
	}
	asking, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := d.rest.do(asking, call{method: http.MethodGet, path: "/gateway/bot"}, &told); err != nil {
		return "", err
	}
	if told.Session.Remaining < 1 && told.Session.Reset > 0 {
		return "", &platform.WaitError{After: time.Duration(min(told.Session.Reset, 24*3600*1000)) * time.Millisecond}
	}
	if !d.trusted(told.URL) {
		return "", errors.New("Discord names a gateway that is not its own")
	}
	return strings.TrimRight(told.URL, "/"), nil
}

// trusted reports whether the token may go to an address.
func (d *Discord) trusted(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	if server, err := url.Parse(d.o.Server); err == nil && u.Host == server.Host {
		return true
	}
	return u.Scheme == "wss" && (u.Hostname() == "discord.gg" || strings.HasSuffix(u.Hostname(), ".discord.gg"))
}

// line is one connection to the gateway.
type line struct {
	d    *Discord
	s    *session
	conn *websocket.Conn

	acked  atomic.Bool // the last heartbeat was answered
	zombie atomic.Bool
}

// run reads until the connection ends.
func (l *line) run(ctx context.Context, cancel context.CancelFunc) error {
	first, done := context.WithTimeout(ctx, helloTimeout)
	defer done()
	hello, err := l.read(first)
	if err != nil {
		return err
	}
	var greeting struct {
		Interval int64 `json:"heartbeat_interval"`
	}
	if err := json.Unmarshal(hello.D, &greeting); err != nil || hello.Op != opHello || greeting.Interval < 1 {
		return errors.New("the gateway does not say hello")
	}
	if err := l.introduce(ctx); err != nil {
		return err
	}
	l.acked.Store(true)
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel()
	beating.Go(func() {
		if l.beat(ctx, time.Duration(greeting.Interval)*time.Millisecond) {
			l.zombie.Store(true)
			l.conn.CloseNow()
		}
	})
	for {
		f, err := l.read(ctx)
		if err == nil {
			err = l.take(ctx, f)
		}
		if l.zombie.Load() {
			return errZombie
		}
		if err != nil {
			return l.explain(err)
		}
	}
}

// introduce goes on with the session, or begins one.
func (l *line) introduce(ctx context.Context) error {
	if id, seq, ok := l.s.resumable(); ok {
		return l.write(ctx, opResume, map[string]any{"token": l.d.o.Token, "session_id": id, "seq": seq})
	}
	if !l.s.mayIdentify(ctx, l.d.o.IdentifyEvery) {
		return ctx.Err()
	}
	return l.write(ctx, opIdentify, map[string]any{
		"token": l.d.o.Token, "intents": intents,
		"properties": map[string]string{"os": "linux", "browser": "comfyhub", "device": "comfyhub"},
	})
}

func (l *line) read(ctx context.Context) (frame, error) {
	_, data, err := l.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	l.d.heard.Store(time.Now().UnixNano())
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return f, errors.New("the gateway says what is no message")
	}
	return f, nil
}

func (l *line) write(ctx context.Context, op int, d any) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	data, err := json.Marshal(map[string]any{"op": op, "d": d})
	if err != nil {
		return err
	}
	return l.conn.Write(ctx, websocket.MessageText, data)
}

// beat sends heartbeats until the connection ends. It returns true if one was not
// answered until the next was due: nobody is there any more.
func (l *line) beat(ctx context.Context, every time.Duration) (silent bool) {
	// The first comes early, at a time that differs from bot to bot.
	wait := time.Duration(float64(every) * (float64(time.Now().UnixNano()%1000) / 1000))
	for retry.Sleep(ctx, wait) {
		if !l.acked.Swap(false) {
			return true
		}
		if l.write(ctx, opHeartbeat, l.s.last()) != nil {
			return false // the reader learns why the connection has ended
		}
		wait = every
	}
	return false
}

// take handles one message of the gateway.
func (l *line) take(ctx context.Context, f frame) error {
	switch f.Op {
	case opDispatch:
		if f.T == "READY" || f.T == "RESUMED" {
			l.d.trouble.Store(nil)
		}
		return l.s.dispatch(ctx, f)
	case opHeartbeat:
		return l.write(ctx, opHeartbeat, l.s.last())
	case opHeartbeatAck:
		l.acked.Store(true)
	case opReconnect:
		return errors.New("the gateway asks for another connection")
	case opInvalidSession:
		var resumable bool
		if json.Unmarshal(f.D, &resumable) != nil || !resumable {
			l.s.forget(ctx)
		}
		return errors.New("the gateway does not know the session")
	}
	return nil
}

// explain interprets how a connection has ended; see the close codes in
// https://docs.discord.com/developers/topics/opcodes-and-status-codes.
func (l *line) explain(err error) error {
	code := int(websocket.CloseStatus(err))
	switch code {
	case 4004:
		return ErrToken
	case 4010, 4011:
		return fmt.Errorf("%w: the bot is in too many servers for one connection (%d)", errRefused, code)
	case 4012, 4013, 4014:
		return fmt.Errorf("%w: it does not allow what the bridge asks for (%d)", errRefused, code)
	case 1000, 1001, 4003, 4007, 4009:
		l.s.forget(context.Background())
	}
	return err
}
