package shell

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// maxAnswer bounds an answer of the hub, in bytes. Files are not bounded.
	maxAnswer = 32 << 20
	// answerTimeout is how long the hub may take to begin an answer. It fetches the
	// inputs of a job before it accepts one.
	answerTimeout = 5 * time.Minute
	// silence is how long an answer may pause. The hub breaks a stream's silence every
	// 15 seconds.
	silence = time.Minute
	// submissions is how often a job is sent whose answer was lost.
	submissions = 4
)

// Access is where the hub is and who asks. Either User or Token may be set.
type Access struct {
	// Hub is the hub's URL.
	Hub            string
	User, Password string
	Token          string
}

// Client speaks the plain job API of one hub.
type Client struct {
	base   *url.URL
	access Access
	http   *http.Client
}

// NewClient returns a client, which must be closed. An error is the user's.
func NewClient(a Access) (*Client, error) {
	base, err := url.Parse(a.Hub)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("the hub's URL must look like http://localhost:8188")
	case base.User != nil:
		return nil, errors.New("a login in the hub's URL would show in the list of processes: use --user")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the hub's URL must have neither ? nor #")
	case a.User != "" && a.Token != "":
		return nil, errors.New("either a user or a token, not both")
	}
	return &Client{base: base, access: a, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
			DialContext: (&net.Dialer{Timeout: 15 * time.Second}).DialContext, TLSHandshakeTimeout: 15 * time.Second,
			ResponseHeaderTimeout: answerTimeout,
		},
		// A redirect would take the login elsewhere, and make a GET of a POST.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes the client's connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Refusal is an error that the hub has answered with.
type Refusal struct {
	// Status is that of HTTP.
	Status int
	Detail string
	// Nodes says what is wrong with each node of a workflow, by its id.
	Nodes map[string]nodeFault
	// RetryAfter is how long to wait before another attempt, 0 if the hub has not said.
	RetryAfter time.Duration
}

// nodeFault is what is wrong with a node, in ComfyUI's form.
type nodeFault struct {
	Class  string `json:"class_type"`
	Errors []struct {
		Message string `json:"message"`
		Details string `json:"details"`
	} `json:"errors"`
}

// Error says what is wrong, a line for each fault.
func (r *Refusal) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "the hub answers %d: %s", r.Status, printable(r.Detail))
	nodes := make([]string, 0, len(r.Nodes))
	for id := range r.Nodes {
		nodes = append(nodes, id)
	}
	slices.Sort(nodes)
	for _, id := range nodes {
		for _, e := range r.Nodes[id].Errors {
			fmt.Fprintf(&text, "\n  node %s (%s): %s: %s", printable(id), printable(r.Nodes[id].Class), printable(e.Message), printable(e.Details))
		}
	}
	if r.RetryAfter > 0 {
		fmt.Fprintf(&text, "\n  try again in %s", r.RetryAfter)
	}
	return text.String()
}

// readRefusal reads an answer that is an error.
func readRefusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	refusal := &Refusal{Status: resp.StatusCode}
	var told struct {
		Detail string
		Error  json.RawMessage
		Nodes  map[string]nodeFault `json:"node_errors"`
	}
	_ = json.Unmarshal(body, &told) // what is no JSON says nothing
	var fault struct{ Message, Details string }
	_ = json.Unmarshal(told.Error, &fault)
	refusal.Detail, refusal.Nodes = cmp.Or(told.Detail, strings.TrimSpace(fault.Message+" "+fault.Details)), told.Nodes
	if to := resp.Header.Get("Location"); resp.StatusCode < 400 && to != "" {
		refusal.Detail = "it redirects to " + to + ": if that is the hub, name it with --hub"
	}
	if strings.Contains(resp.Header.Get("Server"), "aiohttp") && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed) {
		refusal.Detail = "this looks like ComfyUI, not a hub: name the hub with --hub or " + hubVariable
	}
	refusal.Detail = cmp.Or(refusal.Detail, http.StatusText(resp.StatusCode))
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		refusal.RetryAfter = time.Duration(min(n, 3600)) * time.Second
	}
	return refusal
}

// errID is the error for an id that no job can have.
var errID = usagef("that is not the id of a job")

// path is the path of a job's route.
func path(route, id string) (string, error) {
	if id == "" || id == "." || id == ".." || len(id) > 1000 || strings.ContainsAny(id, "/\\") {
		return "", errID
	}
	return "/hub/v1/" + route + "/" + url.PathEscape(id), nil
}

// send makes a request. The answer's body must be closed; it ends when the hub is silent
// for too long.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+path, bytes.NewReader(body))
	if err != nil {
		cancel(err)
		return nil, err
	}
	maps.Copy(r.Header, header)
	switch {
	case c.access.User != "":
		r.SetBasicAuth(c.access.User, c.access.Password)
	case c.access.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.access.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		cancel(err)
		return nil, err
	}
	alarm := time.AfterFunc(silence, func() { cancel(errors.New("the hub is silent")) })
	resp.Body = &watched{ReadCloser: resp.Body, alarm: alarm, cancel: func() { cancel(nil) }}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotModified {
		defer resp.Body.Close()
		return nil, readRefusal(resp)
	}
	return resp, nil
}

// watched is a body that ends when nothing comes for a while.
type watched struct {
	io.ReadCloser

	alarm  *time.Timer
	cancel func()
}

// Read implements [io.Reader].
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.alarm.Reset(silence)
	}
	return n, err
}

// Close implements [io.Closer].
func (w *watched) Close() error {
	w.alarm.Stop()
	w.cancel()
	return w.ReadCloser.Close()
}

// answer makes a request and reads the answer.
func (c *Client) answer(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, error) {
	resp, err := c.send(ctx, method, path, header, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = errors.New("the hub's answer is too large")
	}
	return data, err
}

// Submit sends an order, the body of POST /submit. It has an idempotency key, so Submit
// sends it again if the answer is lost.
func (c *Client) Submit(ctx context.Context, order []byte) (Job, error) {
	pause := retry.New(500*time.Millisecond, 5*time.Second)
	for n := 1; ; n++ {
		answer, err := c.answer(ctx, http.MethodPost, "/hub/v1/submit", http.Header{"Content-Type": {"application/json"}}, order)
		if err == nil {
			return readJob(answer)
		}
		if n == submissions || !mayHelp(err) || !pause.Wait(ctx) {
			return Job{}, err
		}
	}
}

// mayHelp reports whether a request that has failed may succeed a moment later.
func mayHelp(err error) bool {
	var refusal *Refusal
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &refusal):
		return refusal.Status == http.StatusBadGateway || refusal.Status == http.StatusServiceUnavailable || refusal.Status == http.StatusGatewayTimeout
	case errors.As(err, &op) && op.Op == "dial": // a wrong address, more often than not
		return false
	}
	return true
}

// Status asks for a job.
func (c *Client) Status(ctx context.Context, id string) (Job, error) {
	p, err := path("status", id)
	if err != nil {
		return Job{}, err
	}
	answer, err := c.answer(ctx, http.MethodGet, p, nil, nil)
	if err != nil {
		return Job{}, err
	}
	return readJob(answer)
}

// Cancel cancels a job. It reports whether the job had not ended before, and its status.
func (c *Client) Cancel(ctx context.Context, id string) (cancelled bool, status string, err error) {
	p, err := path("cancel", id)
	if err != nil {
		return false, "", err
	}
	answer, err := c.answer(ctx, http.MethodPost, p, http.Header{"Content-Type": {"application/json"}}, []byte("{}"))
	if err != nil {
		return false, "", err
	}
	var told struct {
		Cancelled bool
		Status    string
	}
	if err := json.Unmarshal(answer, &told); err != nil {
		return false, "", fmt.Errorf("the hub's answer: %w", err)
	}
	return told.Cancelled, told.Status, nil
}

// Jobs are the user's jobs, or nil if nothing has changed since the answer with a tag.
func (c *Client) Jobs(ctx context.Context, tag string) (jobs []Job, newTag string, err error) {
	header := http.Header{}
	if tag != "" {
		header.Set("If-None-Match", tag)
	}
	resp, err := c.send(ctx, http.MethodGet, "/hub/jobs", header, nil)
	if err != nil {
		return nil, tag, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		return nil, tag, nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&jobs); err != nil {
		return nil, tag, fmt.Errorf("the hub's answer: %w", err)
	}
	return jobs, resp.Header.Get("Etag"), nil
}

// Open fetches a file. It asks this hub for it, wherever the file's URL may lead.
func (c *Client) Open(ctx context.Context, f File) (io.ReadCloser, error) {
	query := url.Values{"filename": {f.Filename}, "subfolder": {f.Subfolder}, "type": {f.Type}}
	resp, err := c.send(ctx, http.MethodGet, "/view?"+query.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
