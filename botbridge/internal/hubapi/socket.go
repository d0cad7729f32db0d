package hubapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// maxFrame bounds a frame of the event stream, in bytes. Previews are images.
const maxFrame = 16 << 20

// Socket is the event stream of one client id.
type Socket struct{ conn *websocket.Conn }

// Follow opens the event stream of a client id.
func (c *Client) Follow(ctx context.Context, tenant, client string) (*Socket, error) {
	header := http.Header{}
	c.sign(header, tenant)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, response, err := websocket.Dial(ctx, c.base.String()+"/ws?clientId="+url.QueryEscape(client), &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header,
	})
	if response != nil && response.Body != nil {
		response.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	conn.SetReadLimit(maxFrame)
	return &Socket{conn}, nil
}

// Close ends the stream.
func (s *Socket) Close() { _ = s.conn.CloseNow() }

// Happening is one event of the stream.
type Happening struct {
	comfyui.Message
	// Preview is the latest preview, a JPEG or PNG; nil for every other event.
	Preview []byte
}

// Next waits for the next event. After an error the stream is closed.
func (s *Socket) Next(ctx context.Context) (Happening, error) {
	for {
		kind, frame, err := s.conn.Read(ctx)
		if err != nil {
			s.Close()
			return Happening{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if kind == websocket.MessageBinary {
			if b, ok := comfyui.ParseBinary(frame); ok && len(b.Image) > 0 && b.Format != 0 {
				return Happening{Preview: b.Image}, nil
			}
			continue
		}
		if m, ok := comfyui.ParseMessage(frame); ok {
			return Happening{Message: m}, nil
		}
	}
}
