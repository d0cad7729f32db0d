package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

const (
	// answerTimeout is how long a client waits for an answer before it tries
	// elsewhere.
	answerTimeout = 5 * time.Second
	// silence is how long a socket may be silent before its client reconnects: a
	// hub sends something every 9 s.
	silence = 20 * time.Second
	// grace is how long an open socket may go without reporting an end that the
	// hubs already know.
	grace = 30 * time.Second
	// calm is for how much of this time Redis and all hubs must have been well.
	calm = 10 * time.Second
	// window is how long after its end a prompt is told to a client that comes back:
	// replay_window, less what clocks and answers may differ.
	window = 58 * time.Second
)

// client submits prompts to any hub, listens, leaves, comes back and cancels.
type client struct {
	name   string
	hubs   []string // URLs, each through a proxy
	random *rand.Rand
	tally  *tally
	http   *http.Client
	well   *availability
	// nameless clients have no socket. They only submit.
	nameless bool

	id      string
	prompts map[string]*prompt // of this visit
}

// run makes one visit after the other until submit ends. ctx ends the last one.
func (c *client) run(ctx, submit context.Context) {
	for submit.Err() == nil && ctx.Err() == nil {
		c.id, c.prompts = "", map[string]*prompt{}
		if c.nameless {
			c.post(submit)
			c.pause(submit, 500*time.Millisecond)
			continue
		}
		c.id = uuid.NewString()
		c.visit(ctx, submit)
	}
}

// hub returns any of the hubs.
func (c *client) hub() string { return c.hubs[c.random.IntN(len(c.hubs))] }

func (c *client) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// post submits a prompt to any hub, and notes the answer. A client that gets no
// answer does not know whether the prompt was accepted, and submits another.
func (c *client) post(ctx context.Context) *prompt {
	p := newPrompt(c.tally.colour(), c.random)
	p.client, p.bySocket = c.id, c.id != "" && c.random.IntN(6) == 0
	c.prompts[p.id] = p
	code, answer, err := c.do(ctx, http.MethodPost, c.hub()+"/prompt", p.body())
	p.accepted = err == nil && code == http.StatusOK
	switch {
	case err != nil:
		c.tally.posted(p, "none")
	case code == http.StatusOK, code == http.StatusServiceUnavailable, code == http.StatusBadGateway:
		c.tally.posted(p, strconv.Itoa(code))
	default:
		c.tally.posted(p, fmt.Sprintf("%d %.120s", code, answer))
	}
	return p
}

// visit opens a socket, submits a few prompts and listens until all that were
// accepted have ended.
func (c *client) visit(ctx, submit context.Context) {
	var conn *websocket.Conn
	var since moment // when the socket was opened
	var s *socket
	leave := func() {
		if conn != nil {
			conn.CloseNow()
			conn = nil
		}
	}
	defer leave()
	known := map[string]seen{} // when the client first saw that a prompt had ended
	left := 1 + c.random.IntN(4)
	looked := time.Now()
	for ctx.Err() == nil {
		if conn == nil {
			if conn = c.dial(ctx); conn == nil {
				c.pause(ctx, 200*time.Millisecond)
				continue
			}
			since, s = c.now(), &socket{client: c, conn: conn, done: map[string]bool{}}
		}
		if left > 0 && submit.Err() == nil {
			left--
			if p := c.post(submit); p.accepted && c.random.IntN(8) == 0 {
				c.cancel(ctx, p)
			}
			continue
		}
		if c.allEnded() {
			return
		}
		if err := s.next(ctx); err != nil || c.random.IntN(200) == 0 {
			leave() // sometimes for no reason, without a close frame
			c.pause(ctx, time.Duration(c.random.IntN(3000))*time.Millisecond)
		}
		if time.Since(looked) < 5*time.Second {
			continue
		}
		looked = time.Now()
		if c.missed(ctx, known, since, conn != nil) {
			return
		}
	}
}

// moment is a time, and how long all had been well until then.
type moment struct {
	time time.Time
	well time.Duration
}

// seen is when a client first saw that a prompt had ended, and when it had.
type seen struct {
	moment
	ended time.Time
}

func (c *client) now() moment { return moment{time.Now(), c.well.wellFor()} }

// patient reports whether a hub had its time since a moment.
func (c *client) patient(m moment) bool {
	return time.Since(m.time) > grace && c.well.wellFor()-m.well > calm
}

// missed looks for prompts that have ended according to a hub, but whose end this
// socket was not told although it has been open for long enough.
func (c *client) missed(ctx context.Context, known map[string]seen, since moment, connected bool) bool {
	found := false
	for id, p := range c.prompts {
		if !p.accepted || p.cancelled || p.ends > 0 {
			continue
		}
		if at, ok := known[id]; !ok {
			// This does not read the history: a client that has seen an end there
			// is not told of it.
			if j, err := c.job(ctx, c.hub(), id); err == nil && !j.live() {
				known[id] = seen{c.now(), time.UnixMilli(int64(j.FinishedAt * 1000))}
			}
		} else if connected && c.patient(at.moment) && c.patient(since) && since.time.Sub(at.ended) < window {
			c.tally.breach(undelivered, "%s (client %s): in the history for %.0f s, socket open for %.0f s", id, c.id, time.Since(at.time).Seconds(), time.Since(since.time).Seconds())
			found = true
		}
	}
	return found
}

func (c *client) allEnded() bool {
	for _, p := range c.prompts {
		if p.accepted && p.ends == 0 && !p.cancelled {
			return false
		}
	}
	return true
}

// cancel stops a prompt in one of the ways that clients know.
func (c *client) cancel(ctx context.Context, p *prompt) {
	p.cancelled = true
	hub := c.hub()
	switch c.random.IntN(3) {
	case 0:
		_, _, _ = c.do(ctx, http.MethodPost, hub+"/queue", fmt.Appendf(nil, `{"delete": [%q]}`, p.id))
	case 1:
		_, _, _ = c.do(ctx, http.MethodPost, hub+"/interrupt", fmt.Appendf(nil, `{"prompt_id": %q}`, p.id))
	default:
		_, _, _ = c.do(ctx, http.MethodPost, hub+"/hub/jobs/"+p.id+"/cancel", nil)
	}
}

// entry is a history entry.
type entry struct {
	Outputs map[string]struct {
		Images []struct{ Filename, Subfolder, Type string }
	}
	Status struct {
		Text     string `json:"status_str"`
		Messages json.RawMessage
	}
}

// job is what the hub says about a prompt.
type job struct {
	ID, Status string
	Attempts   int
	FinishedAt float64 `json:"finished_at"` // in seconds since the Unix epoch
}

func (j job) live() bool {
	return j.Status == "queued" || j.Status == "running"
}

func (c *client) job(ctx context.Context, hub, id string) (j job, err error) {
	code, answer, err := c.do(ctx, http.MethodGet, hub+"/hub/jobs/"+id, nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("GET /hub/jobs: %d %.200s", code, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, &j)
	}
	return j, err
}

// history returns a prompt's entry, nil if there is none.
func (c *client) history(ctx context.Context, hub, id string) (*entry, error) {
	code, answer, err := c.do(ctx, http.MethodGet, hub+"/history/"+id, nil)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("GET /history: %d %.200s", code, answer)
	}
	var all map[string]*entry
	err = json.Unmarshal(answer, &all)
	return all[id], err
}

// view fetches a picture.
func (c *client) view(ctx context.Context, hub, filename, subfolder, kind string) ([]byte, error) {
	query := url.Values{"filename": {filename}, "subfolder": {subfolder}, "type": {kind}}
	code, data, err := c.do(ctx, http.MethodGet, hub+"/view?"+query.Encode(), nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("GET /view of %s: %d %.200s", filename, code, data)
	}
	return data, err
}

func (c *client) do(ctx context.Context, method, address string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", c.name) // hubs also tell clients at one address apart by this
	response, err := c.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func (c *client) dial(ctx context.Context) *websocket.Conn {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, c.hub()+"/ws?clientId="+c.id, &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: http.Header{"User-Agent": {c.name}}})
	if err != nil {
		return nil
	}
	conn.SetReadLimit(-1)
	c.tally.count(&c.tally.sockets)
	return conn
}

// socket is one connection of a client.
type socket struct {
	client  *client
	conn    *websocket.Conn
	open    string          // the prompt whose messages arrive
	results int             // pictures of it that came over the socket
	done    map[string]bool // prompts that have ended on this socket
}

// next reads and checks one message.
func (s *socket) next(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	kind, data, err := s.conn.Read(ctx)
	switch {
	case err != nil:
		return err
	case kind == websocket.MessageBinary:
		return s.picture(data)
	}
	var m struct {
		Type string
		Data struct {
			PromptID string `json:"prompt_id"`
			Node     *string
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m.Data.PromptID == "" {
		return nil
	}
	p := s.client.prompts[m.Data.PromptID]
	switch {
	case p == nil:
		s.client.tally.breach(wrong, "client %s was sent a message of prompt %s", s.client.id, m.Data.PromptID)
	case m.Type == "execution_start":
		s.open, s.results = p.id, 0
	case m.Type == "execution_success" && p.bySocket && s.results == 0:
		s.client.tally.breach(lost, "%s ended without the picture that the socket should have carried", p.id)
	case m.Type == "execution_error" && p.bySocket && bytes.Contains(data, []byte("was lost on its way")):
		s.client.tally.count(&s.client.tally.owed)
	case m.Type == "executing" && m.Data.Node == nil:
		s.end(p)
	}
	return nil
}

func (s *socket) end(p *prompt) {
	switch {
	case s.done[p.id]:
		s.client.tally.breach(doubled, "%s ended twice on one socket of client %s", p.id, s.client.id)
	case p.ends > 0:
		s.client.tally.count(&s.client.tally.again)
	}
	s.done[p.id] = true
	p.ends++
}

// picture checks a PNG that is a result. JPEGs are previews.
func (s *socket) picture(data []byte) error {
	if len(data) < 8 {
		return errors.New("a binary message of less than 8 bytes")
	}
	const plain, asPNG = 1, 2
	if binary.BigEndian.Uint32(data) != plain || binary.BigEndian.Uint32(data[4:]) != asPNG {
		return nil
	}
	p := s.client.prompts[s.open]
	if p == nil {
		s.client.tally.breach(wrong, "client %s was sent a picture of nobody", s.client.id)
		return nil
	}
	s.results++
	s.client.tally.count(&s.client.tally.pictures)
	if err := p.check(data[8:]); err != nil {
		s.client.tally.breach(wrong, "%s over the socket: %v", p.id, err)
	}
	return nil
}
