package comfyui

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// HubHeader is on every answer of a hub, with its version as value.
	HubHeader = "X-ComfyHub"
	// UnreachableHeader is on an agent's 502 when the agent could not connect
	// to its ComfyUI at all, so that the hub knows that nothing was sent. Its
	// value is Gone when the port refused, Restarting when it did so on purpose,
	// else a reason.
	UnreachableHeader = "X-ComfyHub-Unreachable"
	// Gone is the value of UnreachableHeader for a port that refuses.
	Gone = "gone"
	// Restarting is the value of UnreachableHeader for a port that refuses because
	// somebody has asked for a restart, or because the agent's machine stops.
	Restarting = "restarting"
)

// Options tunes a [Client]. The zero value is good for a ComfyUI over plain HTTP.
type Options struct {
	// TLS is for https addresses; nil means the system's defaults.
	TLS *tls.Config
	// UserAgent is sent with every request. Default: "ComfyHub".
	UserAgent string
	// HeaderTimeout is how long the instance may take from the end of a
	// request to the header of its answer. Servers answer late while they
	// load a model, so it is generous. Default: 30 s. Bodies have no limit.
	HeaderTimeout time.Duration
	// ViaAgent says that the address is an agent's, which passes everything
	// on to the instance: when it cannot be reached, the instance may well be
	// alive.
	ViaAgent bool
	// DialTimeout bounds the connecting. Default: 5 s.
	DialTimeout time.Duration
	// Dial connects to the server where that takes something else than TCP. Default: TCP
	// to the host of the address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client talks to one ComfyUI server. It is safe for use by several goroutines.
//
// Many methods: one method for each call of ComfyUI's API.
type Client struct{ wire *wire }

// NewClient returns a client of the server at base, an http or https URL that
// may have a path prefix. It does not connect yet.
func NewClient(base string, o Options) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("instance address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("instance address %q: want http://host:port or https://host:port", u.Redacted())
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	u.RawQuery, u.Fragment = "", ""
	if o.UserAgent == "" {
		o.UserAgent = "ComfyHub"
	}
	if o.HeaderTimeout == 0 {
		o.HeaderTimeout = 30 * time.Second
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	// Keep-alive probes find out within about 30 s that a machine is gone; an
	// event socket, which only reads, would never notice.
	dialer := &net.Dialer{
		Timeout: o.DialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
		},
	}
	dial := dialer.DialContext
	if o.Dial != nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
			defer cancel()
			return o.Dial(ctx, network, address)
		}
	}
	transport := &http.Transport{
		DialContext:           dial,
		TLSClientConfig:       o.TLS,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: o.HeaderTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   16,
		// aiohttp drops idle connections after 75 s. Being first avoids the
		// race in which a POST meets a connection that is just closing.
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		// Bytes are passed on as they come; HTTP/2 would break WebSockets.
		DisableCompression: true,
		TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	patient := transport.Clone()
	patient.ResponseHeaderTimeout *= 10
	return &Client{&wire{
		base: u, agent: o.UserAgent, viaAgent: o.ViaAgent, bodyTimeout: bodyTimeout,
		http:    &http.Client{Transport: transport, CheckRedirect: noRedirect},
		patient: &http.Client{Transport: patient, CheckRedirect: noRedirect},
	}}, nil
}

// noRedirect makes a redirect an answer: it is the login page of some plugin.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// URL returns the address of the server without credentials.
func (c *Client) URL() string { return c.wire.base.Redacted() }

// Close drops idle connections. Requests under way go on.
func (c *Client) Close() {
	c.wire.http.CloseIdleConnections()
	c.wire.patient.CloseIdleConnections()
}
