package a1111

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// maxListing bounds a list of models, maxProgress a progress with its preview, and
	// maxError an answer that is an error, in bytes.
	maxListing  = 32 << 20
	maxProgress = 32 << 20
	maxError    = 64 << 10
	// askTimeout bounds a question. A server that loads a model answers late.
	askTimeout = 20 * time.Second
)

// errGone means that a request has got no answer of the server.
var errGone = errors.New("a1111: the server does not answer")

// statusError is an answer of the server that says no.
type statusError struct {
	status int
	// kind is the name of a Python exception, message what is wrong.
	kind, message string
	// answer is the answer as it came, nil if it was no JSON object.
	answer *pyjson.Object
}

// Error implements error.
func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.message) }

// client asks one A1111 server.
type client struct {
	// root is the server's address, base that of its API.
	root, base string
	http       *http.Client
}

// newClient returns a client of the server at an address, an http or https URL, with user
// and password if the server wants them (--api-auth). dial connects to it; nil means TCP.
func newClient(address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("a1111: the address is no URL") // it may have a password
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("a1111: %q: want http://host:port or https://host:port", u.Redacted())
	}
	u.RawQuery, u.Fragment = "", ""
	transport := &http.Transport{
		DialContext: dial, MaxIdleConnsPerHost: 4, IdleConnTimeout: 4 * time.Second, // uvicorn closes after 5 s
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 256 << 10,
	}
	root := strings.TrimRight(u.String(), "/")
	return &client{root: root, base: root + apiPrefix, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// get asks for something, in at most limit bytes.
func (c *client) get(ctx context.Context, path string, limit int64) (pyjson.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.do(ctx, http.MethodGet, path, nil, limit)
}

// order tells the server to do something that takes no time.
func (c *client) order(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := c.do(ctx, http.MethodPost, path, nil, maxError)
	return err
}

// do makes a request; it takes as long as ctx lets it. The error is errGone or a
// *statusError.
func (c *client) do(ctx context.Context, method, path string, body []byte, limit int64) (pyjson.Value, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("a1111: the address cannot be used")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ComfyHub")
	resp, err := c.http.Do(r)
	if err != nil {
		// Its text has the address, perhaps with a password.
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err
		}
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // what came is told
		switch resp.StatusCode {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout: // of a proxy in front of it
			return nil, fmt.Errorf("%w: status %d", errGone, resp.StatusCode)
		}
		return nil, readError(resp.StatusCode, text)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	case int64(len(data)) > limit:
		return nil, &statusError{status: resp.StatusCode, kind: "RuntimeError", message: fmt.Sprintf("the answer of the A1111 server has more than %d bytes", limit)}
	}
	v, err := pyjson.Parse(data)
	if err != nil {
		return nil, &statusError{status: resp.StatusCode, kind: "RuntimeError", message: "the answer of the A1111 server is not JSON"}
	}
	return v, nil
}

const (
	// maxReason bounds what is told of an error, in bytes.
	maxReason = 2000
	// oom is how PyTorch calls a full GPU.
	oom = "OutOfMemoryError"
)

// readError reads an answer with an error: {"error", "detail", "errors"} of A1111, or
// {"detail": [{"loc", "msg"}]} of FastAPI. What else is in it may be a prompt.
func readError(status int, body []byte) *statusError {
	e := &statusError{status: status, kind: "RuntimeError", message: fmt.Sprintf("the A1111 server answers with status %d", status)}
	v, err := pyjson.Parse(body)
	o, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return e
	}
	e.answer = o
	if status == http.StatusUnprocessableEntity {
		e.kind = "ValueError"
	}
	if kind := o.String("error"); kind != "" && len(kind) <= 100 && !strings.ContainsAny(kind, " \n") {
		e.kind = kind
	}
	if e.kind == oom { // by the full name hubs know it
		e.kind = "torch." + oom
	}
	message := o.String("errors")
	if detail := o.String("detail"); detail != "" && (message == "" || strings.Contains(message, detail)) {
		message = detail
	}
	var parts []string
	for _, v := range o.Array("detail") {
		one, _ := v.(*pyjson.Object)
		var place []string
		for _, v := range one.Array("loc") {
			switch v := v.(type) {
			case pyjson.String:
				place = append(place, string(v))
			case pyjson.Number:
				place = append(place, string(v))
			}
		}
		parts = append(parts, strings.Join(place, ".")+": "+one.String("msg"))
	}
	if len(parts) > 0 {
		message = strings.Join(parts, "; ")
	}
	if message != "" {
		e.message = strings.ToValidUTF8(message[:min(len(message), maxReason)], "")
	}
	return e
}
