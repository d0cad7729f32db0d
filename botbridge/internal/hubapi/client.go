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

// RefusedError is a prompt that the hub does not accept.
type RefusedError struct {
	// Status is that of the answer.
	Status int
	// Type and Message are of the error, "" if the hub gave none; Details say more where
	// there is more.
	Type, Message, Details string
}

func (e *RefusedError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the hub refused the workflow: status %d", e.Status)
	}
	return strings.TrimSpace(fmt.Sprintf("the hub refused the workflow: %s: %s", e.Message, e.Details))
}

const (
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

func (c *connection) request(ctx context.Context, method, path, tenant string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	c.sign(r.Header, tenant)
	return r, nil
}

func (c *connection) sign(h http.Header, tenant string) {
	h.Set("User-Agent", "ComfyHub-botbridge")
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	if tenant != "" {
		h.Set(tenantHeader, tenant)
	}
}

// send does a request; an answer that means "not now" becomes ErrUnavailable.
func (c *connection) send(r *http.Request) (*http.Response, error) {
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch response.StatusCode {
	case http.StatusUnauthorized:
		response.Body.Close()
		return nil, c.deny(r.URL.Path, response.StatusCode)
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusInternalServerError:
		response.Body.Close()
		return nil, fmt.Errorf("%w: %s %s: status %d", ErrUnavailable, r.Method, r.URL.Path, response.StatusCode)
	}
	return response, nil
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

// read does a request and reads its answer.
func (c *connection) read(r *http.Request) (int, []byte, error) {
	response, err := c.send(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return response.StatusCode, body, nil
}

// get reads the JSON of a 200.
func (c *connection) get(ctx context.Context, path, tenant string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.request(ctx, http.MethodGet, path, tenant, nil)
	if err != nil {
		return err
	}
	status, body, err := c.read(r)
	switch {
	case err != nil:
		return err
	case status == http.StatusForbidden:
		return c.deny(path, status)
	case status == http.StatusNotFound:
		return ErrNotFound
	case status != http.StatusOK:
		return fmt.Errorf("GET %s: status %d", path, status)
	}
	if raw, ok := answer.(*[]byte); ok {
		*raw = body
		return nil
	}
	return json.Unmarshal(body, answer)
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
	body, err := json.Marshal(map[string]any{"prompt": json.RawMessage(s.Graph), "client_id": s.Client, "prompt_id": s.Prompt})
	if err != nil {
		return taken, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.request(ctx, http.MethodPost, "/prompt", s.Tenant, bytes.NewReader(body))
	if err != nil {
		return taken, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.send(r)
	if err != nil {
		return taken, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return taken, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if response.StatusCode != http.StatusOK {
		refused := refusal(response.StatusCode, answer)
		if refused.Message == "" && (refused.Status == http.StatusForbidden || refused.Status == http.StatusNotFound) {
			return taken, c.deny("/prompt", refused.Status)
		}
		return taken, refused
	}
	// A hub that does not say its place has taken the prompt all the same.
	if position, err := strconv.Atoi(response.Header.Get("X-ComfyHub-Position")); err == nil {
		taken.Position = position
	}
	if eta, err := strconv.ParseFloat(response.Header.Get("X-ComfyHub-Eta"), 64); err == nil && eta > 0 && eta < maxETA {
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
