package comfyui

import (
	"bytes"
	"cmp"
	"context"
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

// wire sends requests to one server, and tells of each that failed whether it may have arrived. It
// keeps its own pool of connections, so that a stuck server takes no connections from others.
type wire struct {
	base     *url.URL
	http     *http.Client
	patient  *http.Client // for the calls that scan the server's disks
	agent    string       // User-Agent
	viaAgent bool
	// bodyTimeout is bodyTimeout, but for tests.
	bodyTimeout time.Duration
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

func (w *wire) url(path string, query url.Values) string {
	u := *w.base
	s := u.Scheme + "://" + u.Host + u.EscapedPath() + path
	if len(query) > 0 {
		s += "?" + query.Encode()
	}
	return s
}

// do sends a request and returns any answer below 500, with the headers that may
// go on to a client; the caller closes its body. Errors are [ErrUnreachable], [ErrUnclear] or [ErrHub], wrapped.
func (w *wire) do(ctx context.Context, r request) (*http.Response, error) {
	ctx, connected := traceConn(ctx)
	req, err := http.NewRequestWithContext(ctx, r.method, w.url(r.path, r.query), r.body)
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		req.Header = forInstance(r.header)
	}
	if r.size != 0 {
		req.ContentLength = r.size
	}
	w.sign(req)
	client := w.http
	if r.slow {
		client = w.patient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, w.sentError(connected.Load(), err)
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
func (w *wire) sentError(connected bool, err error) error {
	err = nameless{err}
	var op *net.OpError
	if connected && !(errors.As(err, &op) && op.Op == "dial") {
		return fmt.Errorf("%w: %w", ErrUnclear, err)
	}
	if errors.Is(err, syscall.ECONNREFUSED) && !w.viaAgent {
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
func (w *wire) read(ctx context.Context, r request) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := w.do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if r.turn != nil {
		if err := r.turn(ctx); err != nil {
			return nil, err
		}
	}
	defer time.AfterFunc(w.bodyTimeout, cancel).Stop()
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

func (w *wire) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return w.read(ctx, request{method: http.MethodGet, path: path, query: query})
}

// post sends a JSON body; answers to it are empty.
func (w *wire) post(ctx context.Context, path string, body []byte) error {
	r := jsonRequest(path, body)
	r.limit = maxSmall
	_, err := w.read(ctx, r)
	return err
}

func jsonRequest(path string, body []byte) request {
	return request{
		method: http.MethodPost, path: path,
		header: http.Header{"Content-Type": {"application/json"}},
		body:   bytes.NewReader(body), size: int64(len(body)),
	}
}

// sign adds what the hub itself says of a request.
func (w *wire) sign(r *http.Request) {
	r.Header.Set("User-Agent", w.agent)
	w.logIn(r)
}

// logIn adds the credentials of the address.
func (w *wire) logIn(r *http.Request) {
	if w.base.User != nil {
		password, _ := w.base.User.Password()
		r.SetBasicAuth(w.base.User.Username(), password)
	}
}

// proxyError sorts an error of the reverse proxy.
func (w *wire) proxyError(err error) error {
	if errors.Is(err, ErrHub) || errors.Is(err, ErrUnreachable) {
		return err
	}
	return w.sentError(true, err)
}

// postAgent posts to the agent itself and not to the instance behind it.
func (w *wire) postAgent(ctx context.Context, path string, body []byte) error {
	name, ok := strings.CutPrefix(w.base.EscapedPath(), InstancePath)
	if !w.viaAgent || !ok {
		return &StatusError{Method: http.MethodPost, Path: path, Status: http.StatusNotImplemented, Text: "the instance has no agent"}
	}
	agent := *w
	base := *w.base
	base.Path, base.RawPath = "", ""
	agent.base = &base
	return agent.post(ctx, path+name, body)
}
