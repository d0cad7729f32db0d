// Package tunnel carries a hub's connections to a GPU machine that can only dial out. The
// agent opens a WebSocket to the hub's own port; inside it, yamux carries as many
// connections as the hub opens, and the hub speaks HTTP over each, as it does with an
// agent that it can dial.
package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

const (
	// Path is where a hub accepts tunnels.
	Path = "/hub/tunnel"
	// protocol names the subprotocol of the WebSocket. Another one would carry something
	// else.
	protocol = "comfyhub-tunnel.1"
)

const (
	// keepAlive is how often each side asks whether the other one is there. Proxies cut
	// connections that are idle for a minute.
	keepAlive = 15 * time.Second
	// writeTimeout is how long nothing may move before a tunnel is taken for dead. An
	// uplink may be slow.
	writeTimeout = 30 * time.Second
	// window is how much of one connection may be on its way, in bytes: it bounds both
	// what a connection carries over a long way, and what a side holds for it.
	window = 1 << 20
	// backlog is how many connections may wait to be accepted.
	backlog = 64
	// dialTimeout bounds the opening of a tunnel.
	dialTimeout = 20 * time.Second
)

// Session is one side of a tunnel. It is safe for concurrent use. At the agent it is the
// [net.Listener] of what the hub opens.
type Session struct {
	*yamux.Session
	stop context.CancelFunc
}

// ErrToken means that the hub does not accept the token.
var ErrToken = errors.New("the hub does not accept this machine's token")

// ErrLogin means that something in front of the hub asks for a login, which no machine has.
var ErrLogin = errors.New("the hub's site asks machines for a login, too: leave " + Path + " out of it, as docs/agents.md#tunnels shows")

// Dial opens a tunnel to a hub, given the URL of the hub's site. The error is [ErrToken] if
// the hub knows who asks and refuses, and [ErrLogin] if it was not asked.
func Dial(ctx context.Context, hub, token, userAgent string, client *http.Client) (*Session, error) {
	u, err := SiteURL(hub)
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	socket, resp, err := websocket.Dial(dialing, u.JoinPath(Path).String(), &websocket.DialOptions{
		HTTPClient: client, Subprotocols: []string{protocol}, CompressionMode: websocket.CompressionDisabled,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}, "User-Agent": {userAgent}},
	})
	switch {
	case err != nil && resp != nil && resp.StatusCode == http.StatusUnauthorized:
		return nil, refusedBy(resp)
	case err != nil:
		return nil, fmt.Errorf("tunnel to %s: %w", u.Redacted(), err)
	case socket.Subprotocol() != protocol:
		_ = socket.CloseNow()
		return nil, fmt.Errorf("tunnel to %s: no hub is there, or an older one", u.Redacted())
	}
	return newSession(socket, yamux.Server, backlog)
}

// SiteURL parses the URL of a hub's site.
func SiteURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q: want the URL of the hub's site, https://HOST", text)
	}
	return u, nil
}

// Token returns the token in a request for a tunnel, empty for none.
func Token(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Machine returns the name in a token.
func Machine(token string) (string, error) {
	name, _, found := strings.Cut(token, Separator)
	if !found || fleet.CheckName(name) != nil {
		return "", errors.New("this is no token: one is NAME" + Separator + "SECRET")
	}
	return name, nil
}

// Once begins the secret of a token that is good only for getting the machine's own, once.
const Once = "once-"

// Separator stands between the name of a machine and the secret in its token. No name has it.
const Separator = ":"

// IsOnce reports whether a token is good only for getting the machine's own.
func IsOnce(token string) bool {
	_, secret, _ := strings.Cut(token, Separator)
	return strings.HasPrefix(secret, Once)
}

// Accept makes a tunnel of a request by [Dial]. If it fails, the request has its answer.
func Accept(w http.ResponseWriter, r *http.Request) (*Session, error) {
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	if socket.Subprotocol() != protocol {
		return nil, errors.Join(errors.New("tunnel: the agent is of another version"),
			socket.Close(websocket.StatusPolicyViolation, "subprotocol "+protocol+" is wanted"))
	}
	// The agent opens nothing.
	return newSession(socket, yamux.Client, 1)
}

func newSession(socket *websocket.Conn, side func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error), backlog int) (*Session, error) {
	ctx, stop := context.WithCancel(context.Background())
	socket.SetReadLimit(-1) // yamux bounds what it takes
	settings := yamux.DefaultConfig()
	settings.AcceptBacklog, settings.MaxStreamWindowSize = backlog, window
	settings.KeepAliveInterval, settings.ConnectionWriteTimeout = keepAlive, writeTimeout
	settings.LogOutput = io.Discard
	mux, err := side(websocket.NetConn(ctx, socket, websocket.MessageBinary), settings)
	if err != nil {
		stop()
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	return &Session{mux, stop}, nil
}

// Accept returns the next connection that the hub opens. It implements [net.Listener].
func (s *Session) Accept() (net.Conn, error) {
	c, err := s.Session.Accept()
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", cmp.Or(err, net.ErrClosed))
	}
	return c, nil
}

// DialContext opens a connection to the agent, whatever the address. It is the dialer of
// an HTTP client.
func (s *Session) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	type opened struct {
		conn net.Conn
		err  error
	}
	done := make(chan opened, 1)
	go func() { // Open waits where many connections are being opened
		c, err := s.Open()
		done <- opened{c, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("tunnel: %w", o.err)
		}
		return o.conn, nil
	case <-ctx.Done():
		go func() {
			if o := <-done; o.err == nil {
				_ = o.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// Close cuts the tunnel and all connections in it.
func (s *Session) Close() error {
	err := s.Session.Close()
	s.stop()
	return err
}
