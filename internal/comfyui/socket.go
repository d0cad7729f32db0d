package comfyui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
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
}

// Frame is one WebSocket message.
type Frame struct {
	Binary bool
	Data   []byte
}

// Dial opens the event socket of the instance. A sid must never be used twice
// while the first socket may still be open: when that one closes, servers
// silence the second too. Errors are as for requests.
func (c *Client) Dial(ctx context.Context, sid string) (*Socket, error) {
	header := http.Header{"User-Agent": {c.agent}}
	if c.base.User != nil {
		password, _ := c.base.User.Password()
		r := http.Request{Header: header}
		r.SetBasicAuth(c.base.User.Username(), password)
	}
	traced, connected := traceConn(ctx)
	conn, resp, err := websocket.Dial(traced, c.url("/ws", url.Values{"clientId": {sid}}), &websocket.DialOptions{
		HTTPClient: c.http,
		HTTPHeader: header,
		// Most of the traffic is compressed pictures, and it stays on the
		// machine or the local network.
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil && resp == nil {
		return nil, fmt.Errorf("opening the event socket: %w", c.sentError(connected.Load(), err))
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
	return &Socket{SID: sid, conn: conn}, nil
}

// Next waits for the next frame. After an error, and when ctx ends, the socket
// is closed.
func (s *Socket) Next(ctx context.Context) (Frame, error) {
	kind, data, err := s.conn.Read(ctx)
	if err != nil {
		return Frame{}, err
	}
	return Frame{Binary: kind == websocket.MessageBinary, Data: data}, nil
}

// Ping asks the server for a sign of life. It needs a concurrent Next.
func (s *Socket) Ping(ctx context.Context) error { return s.conn.Ping(ctx) }

// Close ends the connection at once; a concurrent Next returns.
func (s *Socket) Close() { s.conn.CloseNow() }
