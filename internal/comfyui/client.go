package comfyui

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
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

	// maxBody bounds what is read into memory of one answer. object_info of a large
	// installation has 20 MB.
	maxBody = 256 << 20
	// maxHistory is the same for the record of a prompt, which carries the workflow, and of
	// which the hub makes several copies.
	maxHistory = 64 << 20
	// maxObjectInfo and maxSmall are the same for object_info, and for answers
	// that have a few kilobytes.
	maxObjectInfo = 96 << 20
	maxSmall      = 4 << 20
	// maxClassInfo is the same for object_info of one class: a list of fifty
	// thousand files takes 5 MB.
	maxClassInfo = 17 << 20
	// maxHeader bounds the header of an answer.
	maxHeader = 256 << 10
	// maxTrust is how much memory is taken on the word of a Content-Length.
	maxTrust = 4 << 20
	// bodyTimeout is how long an answer may take that is read into memory. An
	// instance that drips would hold the memory, and whoever waits, for ever.
	bodyTimeout = 5 * time.Minute
	// maxErrorText bounds what an error quotes.
	maxErrorText = 200
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

// Client talks to one ComfyUI server. It keeps its own pool of connections, so
// that a stuck server takes no connections from others. It is safe for use by
// several goroutines.
//
// Many methods: one method for each call of ComfyUI's API.
type Client struct {
	base      *url.URL
	http      *http.Client
	transport *http.Transport
	patient   *http.Client // for the calls that scan the server's disks
	agent     string       // User-Agent
	viaAgent  bool
	// bodyTimeout is bodyTimeout, but for tests.
	bodyTimeout time.Duration
}

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
	return &Client{
		base: u, agent: o.UserAgent, viaAgent: o.ViaAgent, transport: transport, bodyTimeout: bodyTimeout,
		http:    &http.Client{Transport: transport, CheckRedirect: noRedirect},
		patient: &http.Client{Transport: patient, CheckRedirect: noRedirect},
	}, nil
}

// noRedirect makes a redirect an answer: it is the login page of some plugin.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// URL returns the address of the server without credentials.
func (c *Client) URL() string { return c.base.Redacted() }

// Close drops idle connections. Requests under way go on.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.patient.CloseIdleConnections()
}

// request describes one call.
type request struct {
	method string
	path   string // escaped
	query  url.Values
	header http.Header
	body   io.Reader
	size   int64 // of body; -1 when not known
	slow   bool  // the server may take minutes
	limit  int64 // of the answer, in bytes; 0 for maxBody
	// turn is called before the body of the answer is read; nil for no wait.
	turn func(context.Context) error
}

func (c *Client) url(path string, query url.Values) string {
	u := *c.base
	s := u.Scheme + "://" + u.Host + u.EscapedPath() + path
	if len(query) > 0 {
		s += "?" + query.Encode()
	}
	return s
}

// do sends a request and returns any answer below 500, with the headers that may
// go on to a client; the caller closes its body. Errors are [ErrUnreachable], [ErrUnclear] or [ErrHub], wrapped.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	ctx, connected := traceConn(ctx)
	req, err := http.NewRequestWithContext(ctx, r.method, c.url(r.path, r.query), r.body)
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		req.Header = forInstance(r.header)
	}
	if r.size != 0 {
		req.ContentLength = r.size
	}
	c.sign(req)
	client := c.http
	if r.slow {
		client = c.patient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, c.sentError(connected.Load(), err)
	}
	if err := checkAnswer(resp); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	resp.Header = forClient(resp.StatusCode, resp.Header)
	return resp, nil
}

// traceConn tells whether a request got a connection, and so may have been sent.
func traceConn(ctx context.Context) (context.Context, *atomic.Bool) {
	var connected atomic.Bool
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}), &connected
}

// sentError tells a request that never left from one whose fate is unknown. A
// failed dial is of the first kind though a connection was there before: the
// transport tries a second one only if nothing was written to the first.
func (c *Client) sentError(connected bool, err error) error {
	err = nameless{err}
	var op *net.OpError
	if connected && !(errors.As(err, &op) && op.Op == "dial") {
		return fmt.Errorf("%w: %w", ErrUnclear, err)
	}
	if errors.Is(err, syscall.ECONNREFUSED) && !c.viaAgent {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// checkAnswer refuses answers of hubs and turns server errors into errors.
func checkAnswer(resp *http.Response) error {
	if resp.Header.Get(HubHeader) != "" {
		return ErrHub
	}
	switch reason := resp.Header.Get(UnreachableHeader); reason {
	case "":
	case Gone:
		return ErrGone
	case Restarting:
		return ErrRestarting
	default:
		return fmt.Errorf("%w: its agent says: %s", ErrUnreachable, reason)
	}
	if resp.StatusCode >= 500 {
		return fmt.Errorf("%w: status %d: %s", ErrUnclear, resp.StatusCode, errorText(resp.Body))
	}
	return nil
}

func errorText(body io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(body, maxErrorText)) // a quote in an error: what came is enough
	return string(bytes.TrimSpace(data))
}

// read performs a request and returns the body of its 200 answer.
func (c *Client) read(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if r.turn != nil {
		if err := r.turn(ctx); err != nil {
			return nil, err
		}
	}
	defer time.AfterFunc(c.bodyTimeout, cancel).Stop()
	if resp.StatusCode != http.StatusOK {
		return nil, &StatusError{Method: r.method, Path: r.path, Status: resp.StatusCode, Text: errorText(resp.Body)}
	}
	return readBody(resp, cmp.Or(r.limit, maxBody))
}

func readBody(resp *http.Response, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	if n := resp.ContentLength; n > limit {
		return nil, ErrTooLarge
	} else if n > 0 {
		buf.Grow(int(min(n, maxTrust)) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnclear, err)
	}
	if n > limit {
		return nil, ErrTooLarge
	}
	return buf.Bytes(), nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.read(ctx, request{method: http.MethodGet, path: path, query: query})
}

// post sends a JSON body; answers to it are empty.
func (c *Client) post(ctx context.Context, path string, body []byte) error {
	r := jsonRequest(path, body)
	r.limit = maxSmall
	_, err := c.read(ctx, r)
	return err
}

func jsonRequest(path string, body []byte) request {
	return request{
		method: http.MethodPost, path: path,
		header: http.Header{"Content-Type": {"application/json"}},
		body:   bytes.NewReader(body), size: int64(len(body)),
	}
}
