// Package hubapi is the bridge's client of a hub: ComfyUI's own HTTP and WebSocket
// API, and the hub's additions under /hub/. It uses only the public API; each call
// is on behalf of one tenant.
package hubapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var (
	// ErrUnavailable means that the hub cannot handle the call now: it cannot be
	// reached, does not answer in time, or says so itself. Repeating helps.
	ErrUnavailable = errors.New("the hub is away")
	// ErrDenied means that the hub does not accept the key of the bridge, or that there is no
	// hub under its URL. It is an ErrUnavailable that only the operator can end.
	ErrDenied = errors.New("it does not accept the key of the bridge, or is no hub")
	// ErrNotFound means that the hub does not know the job or file.
	ErrNotFound = errors.New("the hub does not know it")

	errBase = errors.New("this is not the URL of a hub")
)

// RefusedError is what the hub does not accept, above all a prompt.
type RefusedError struct {
	// Status is that of the answer.
	Status int
	// Type and Message are of the error, "" if the hub gave none; Details say more where
	// there is more.
	Type, Message, Details string
}

func (e *RefusedError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the hub refused it: status %d", e.Status)
	}
	return strings.TrimSpace(fmt.Sprintf("the hub refused it: %s: %s", e.Message, e.Details))
}

// denies reports whether only the operator can mend it. Of a 403, a prompt may be the cause: then
// the hub says so, and does not mean the key or the way on which the call came.
func (e *RefusedError) denies(path string) bool {
	switch e.Status {
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden:
		return path != promptPath || slices.Contains([]string{"", "missing_scope", "unknown_host", "foreign_origin"}, e.Type)
	case http.StatusNotFound: // there is no hub
		return e.Message == "" && (path == promptPath || path == uploadPath)
	}
	return false
}

const (
	promptPath = "/prompt"
	uploadPath = "/upload/image"
	// tenantHeader names the tenant that pays for the work. The hub believes it of those
	// who show that they may act for tenants.
	tenantHeader = "X-ComfyHub-Tenant"
	// maxAnswer bounds the answers that are read whole, in bytes.
	maxAnswer = 64 << 20
	// maxETA is the longest time that is believed, in seconds: a month.
	maxETA = 30 * 86400
	// maxRedirects bounds the redirects that are followed to the same server.
	maxRedirects = 5
)

// Options tune a Client.
type Options struct {
	// Timeout bounds each call without a file. Default: 20 s.
	Timeout time.Duration
	// Key is what lets the bridge in and name tenants: an API key of the hub's with the scope
	// act_for_tenants, or the site's tenant_secret. Default: none.
	Key string
	// HTTP makes the connections. Default: http.DefaultTransport's settings.
	HTTP *http.Transport
}

// Client talks to one hub. It is safe for concurrent use.
type Client struct{ connection }

// connection makes calls, and knows whether the hub lets the bridge in.
type connection struct {
	base    *url.URL
	key     string
	http    *http.Client
	timeout time.Duration
	denied  atomic.Pointer[denial]
}

// New returns a client of the hub at a URL, which may contain a login. It does not
// connect.
func New(base string, o Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	switch {
	case err != nil:
		return nil, errBase // the error would quote the URL, including the login
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return nil, fmt.Errorf("%w: %s", errBase, u.Redacted())
	}
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	if o.HTTP == nil {
		o.HTTP = http.DefaultTransport.(*http.Transport)
	}
	transport := o.HTTP.Clone()
	transport.MaxIdleConnsPerHost = 32
	transport.ResponseHeaderTimeout = 30 * time.Second
	client := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		// Another server must not get the tenant's name and files.
		if r.URL.Scheme != u.Scheme || r.URL.Host != u.Host || len(via) > maxRedirects {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	return &Client{connection{base: u, key: o.Key, http: client, timeout: o.Timeout}}, nil
}

// Close drops idle connections.
func (c *connection) Close() { c.http.CloseIdleConnections() }

func (c *connection) sign(h http.Header, tenant string) {
	h.Set("User-Agent", "ComfyHub-botbridge")
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	if tenant != "" {
		h.Set(tenantHeader, tenant)
	}
}

// do makes a call and returns the answer if it is a 200. Every other one is an error: "not now"
// is ErrUnavailable, what only the operator can mend ErrDenied, and what the hub has not
// ErrNotFound.
func (c *connection) do(ctx context.Context, method, path, tenant, kind string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	c.sign(r.Header, tenant)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	refused := refusal(response.StatusCode, said)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case refused.denies(path):
		return nil, c.deny(r.URL.Path, response.StatusCode)
	}
	err = refused
	switch response.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		err = fmt.Errorf("%w: %w", ErrNotFound, refused)
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusInternalServerError:
		err = fmt.Errorf("%w: status %d", ErrUnavailable, response.StatusCode)
	}
	return nil, fmt.Errorf("%s %s: %w", method, r.URL.Path, err)
}

// deny notes that the operator has to do something.
func (c *connection) deny(path string, status int) error {
	d := &denial{time.Now(), path, status}
	c.denied.Store(d)
	return d
}

// denial is something that the hub did not let the bridge do.
type denial struct {
	at     time.Time
	path   string
	status int
}

func (d *denial) Error() string {
	return fmt.Sprintf("%v (%s: status %d)", ErrDenied, d.path, d.status)
}

// Is makes it unavailable for those who only wait.
func (d *denial) Is(target error) bool { return target == ErrDenied || target == ErrUnavailable }

// Denied returns why the hub has let the bridge do nothing in the last minute, nil if it has.
// Requests that wait for it ask more often than that.
func (c *connection) Denied() error {
	if d := c.denied.Load(); d != nil && time.Since(d.at) < time.Minute {
		return d
	}
	return nil
}

// ask sends JSON, if any, and reads the answer: its JSON, or what it is into a []byte.
func (c *connection) ask(ctx context.Context, method, path, tenant string, question, answer any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var body io.Reader
	kind := ""
	if question != nil {
		doc, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		body, kind = bytes.NewReader(doc), "application/json"
	}
	response, err := c.do(ctx, method, path, tenant, kind, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch answer := answer.(type) {
	case nil:
	case *[]byte:
		*answer = said
	default:
		err = json.Unmarshal(said, answer)
	}
	return response.Header, err
}

// get reads the JSON of a 200.
func (c *connection) get(ctx context.Context, path, tenant string, answer any) error {
	_, err := c.ask(ctx, http.MethodGet, path, tenant, nil, answer)
	return err
}

// post sends JSON and reads the JSON of a 200.
func (c *connection) post(ctx context.Context, path, tenant string, question, answer any) error {
	_, err := c.ask(ctx, http.MethodPost, path, tenant, question, answer)
	return err
}

// Submission is a prompt to queue.
type Submission struct {
	Tenant string
	// Client is the client id; each request has its own, so that no other request's
	// messages delay its own.
	Client string
	// Prompt is the prompt id. The same id with the same graph is the same job
	// to the hub, however often it is posted.
	Prompt string
	// Graph is raw JSON in API format.
	Graph []byte
}

// Taken is what the hub says of a prompt that it has taken.
type Taken struct {
	// Position is its place in the queue from 0, -1 if the hub does not say.
	Position int
	// ETA is when it will be finished, 0 if the hub does not say.
	ETA time.Duration
}

// Submit queues a prompt.
func (c *Client) Submit(ctx context.Context, s Submission) (taken Taken, err error) {
	taken.Position = -1
	header, err := c.ask(ctx, http.MethodPost, promptPath, s.Tenant, map[string]any{
		"prompt": json.RawMessage(s.Graph), "client_id": s.Client, "prompt_id": s.Prompt,
	}, nil)
	if err != nil {
		return taken, err
	}
	// A hub that does not say its place has taken the prompt all the same.
	if position, err := strconv.Atoi(header.Get("X-ComfyHub-Position")); err == nil {
		taken.Position = position
	}
	if eta, err := strconv.ParseFloat(header.Get("X-ComfyHub-Eta"), 64); err == nil && eta > 0 && eta < maxETA {
		taken.ETA = time.Duration(eta * float64(time.Second))
	}
	return taken, nil
}

// refusal parses ComfyUI's refusals.
func refusal(status int, answer []byte) *RefusedError {
	var said struct {
		Error struct {
			Type, Message, Details string
		} `json:"error"`
		NodeErrors map[string]struct {
			Class  string `json:"class_type"`
			Errors []struct{ Message, Details string }
		} `json:"node_errors"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || said.Error.Message == "" {
		return &RefusedError{Status: status}
	}
	refused := &RefusedError{Status: status, Type: said.Error.Type, Message: said.Error.Message, Details: said.Error.Details}
	for node, e := range said.NodeErrors {
		for _, detail := range e.Errors {
			refused.Details = strings.TrimSpace(fmt.Sprintf("%s\n%s (node %s): %s: %s", refused.Details, e.Class, node, detail.Message, detail.Details))
		}
	}
	return refused
}
