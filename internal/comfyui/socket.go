package comfyui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// maxFrame is the largest frame taken from an instance, in bytes: a
	// batch image of SaveImageWebsocket has tens of megabytes.
	maxFrame = 64 << 20
	// featureFlags must be the first frame. It makes previews say which
	// prompt and node they are of.
	featureFlags = `{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`
)

// Socket is the WebSocket to an instance. One goroutine reads it with Next and
// must go on doing so: a server sends to all of its sockets in turn and waits
// for each, so one that is not read stops the events of all others.
type Socket struct {
	// SID is the client_id under which prompts must be submitted for their
	// messages to come here.
	SID  string
	conn *websocket.Conn
	// heard is when something last came, and silent that too long ago nothing did.
	heard  atomic.Int64
	silent atomic.Bool
}

// ErrSilent says that a socket stood and nothing came over it, not even what a server answers
// to a ping by itself: the process is stopped or hangs, or the network swallows what is sent.
var ErrSilent = errors.New("the server is silent")

const (
	// QuietAfter is how long nothing comes over a socket before the server is asked for a sign
	// of life. Whoever wants one sooner than that asks in vain.
	QuietAfter = 1500 * time.Millisecond
	// lateAfter is how long it may take to answer before somebody is told.
	lateAfter = 2 * time.Second
)

// Frame is one WebSocket message.
type Frame struct {
	Binary bool
	Data   []byte
}

// Dial opens the event socket of the instance. A sid must never be used twice
// while the first socket may still be open: when that one closes, servers
// silence the second too. Errors are as for requests.
func (c *Client) Dial(ctx context.Context, sid string) (*Socket, error) {
	header := http.Header{}
	c.wire.sign(&http.Request{Header: header})
	traced, connected := traceConn(ctx)
	conn, resp, err := websocket.Dial(traced, c.wire.url("/ws", url.Values{"clientId": {sid}}), &websocket.DialOptions{
		HTTPClient: c.wire.http,
		HTTPHeader: header,
		// Most of the traffic is compressed pictures, and it stays on the
		// machine or the local network.
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil && resp == nil {
		return nil, fmt.Errorf("opening the event socket: %w", c.wire.sentError(connected.Load(), err))
	}
	if bad := checkAnswer(resp); bad != nil {
		if conn != nil {
			conn.CloseNow() // nothing was said yet: there is nobody to say goodbye to
		}
		return nil, fmt.Errorf("opening the event socket: %w", bad)
	}
	if err != nil {
		return nil, &StatusError{Method: http.MethodGet, Path: "/ws", Status: resp.StatusCode}
	}
	conn.SetReadLimit(maxFrame)
	if err := conn.Write(ctx, websocket.MessageText, []byte(featureFlags)); err != nil {
		conn.CloseNow()
		return nil, fmt.Errorf("opening the event socket: %w: %w", ErrUnclear, err)
	}
	s := &Socket{SID: sid, conn: conn}
	s.heard.Store(time.Now().UnixNano())
	return s, nil
}

// Next waits for the next frame. After an error, and when ctx ends, the socket
// is closed. Errors: ErrSilent if KeepAlive has closed it, ErrTooLarge, and those of the connection.
func (s *Socket) Next(ctx context.Context) (Frame, error) {
	kind, message, err := s.conn.Reader(ctx)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(hearing{message, s})
	}
	if err == nil && kind == websocket.MessageText && tooComplex(data, maxValues) {
		s.Close()
		err = ErrTooLarge
	}
	if err != nil {
		if s.silent.Load() {
			err = ErrSilent
		}
		return Frame{}, err
	}
	return Frame{Binary: kind == websocket.MessageBinary, Data: data}, nil
}

// hearing notes each part of a message: a long one may take minutes, and no answer to a ping
// comes in its middle.
type hearing struct {
	io.Reader
	s *Socket
}

func (h hearing) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.s.heard.Store(time.Now().UnixNano())
	return n, err
}

// quiet is how long nothing has come.
func (s *Socket) quiet() time.Duration { return time.Since(time.Unix(0, s.heard.Load())) }

// KeepAlive asks for a sign of life whenever nothing has come for a while, and closes the
// socket if none comes within patience. heard is called at each sign, and late if there was
// none for some seconds; the two are not called at once. It returns when ctx ends or the
// socket is lost, and needs a concurrent Next.
func (s *Socket) KeepAlive(ctx context.Context, patience time.Duration, heard, late func()) {
	for retry.Sleep(ctx, QuietAfter-s.quiet()) {
		if s.quiet() < QuietAfter {
			continue
		}
		ping, cancel := context.WithTimeout(ctx, patience)
		told := make(chan struct{})
		overdue := time.AfterFunc(lateAfter, func() {
			defer close(told)
			if s.quiet() >= lateAfter { // else a long message comes
				late()
			}
		})
		err := s.conn.Ping(ping)
		ended := ping.Err() != nil
		cancel()
		if !overdue.Stop() {
			<-told
		}
		switch {
		case err == nil:
			s.heard.Store(time.Now().UnixNano())
			heard()
		case !ended || ctx.Err() != nil:
			return // it is lost
		case s.quiet() >= patience:
			s.silent.Store(true)
			s.Close()
			return
		}
	}
}

// Ping asks the server for a sign of life. It needs a concurrent Next.
func (s *Socket) Ping(ctx context.Context) error { return s.conn.Ping(ctx) }

// Close ends the connection at once; a concurrent Next returns.
func (s *Socket) Close() { s.conn.CloseNow() }
