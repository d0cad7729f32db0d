package system

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Graph is a prompt that keeps a server busy for some seconds and makes a picture of one
// colour.
func Graph(seconds float64, color int) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": %d}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 4, "nonce": %d}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, color, seconds, color)
}

// Client is a user's program on a machine of its own: it posts prompts, one after the other,
// and follows each to its end. It goes to another hub when one does not answer, and comes
// back to the same or to another one when it has lost its socket.
type Client struct {
	w      *World
	name   string
	rand   *rand.Rand
	http   *http.Client
	hub    atomic.Int64
	ledger *Ledger
	// socket says that it listens on a WebSocket; otherwise it polls the history.
	socket bool
}

// Prompt is one that a client has posted.
type Prompt struct {
	ID string
	// Pictures is how many it makes. With more than one, Color is their seed, and they take seconds of
	// their own. Default: one.
	Pictures int
	// Apart says that each of several pictures has an output of its own.
	Apart   bool
	Color   int
	Client  string
	Seconds float64
	// Accepted is when a hub answered 200; zero before that.
	Accepted time.Time
	// Told is when the client was told of the end.
	Told time.Time
	// InParts says that its pictures show that several servers have made them.
	InParts bool
}

// Client returns a client, whose choices come from a seed. It posts nothing by itself.
func (w *World) Client(name string, seed uint64, socket bool, ledger *Ledger) *Client {
	r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- repeatable, not secret
	c := &Client{w: w, name: name, rand: r, http: w.HTTP(name), socket: socket, ledger: ledger}
	c.hub.Store(int64(r.IntN(len(w.Hubs))))
	return c
}

// patience is how long a client waits for one answer.
const patience = 30 * time.Second

// connectWithin is how long it waits for a socket: whoever has lost one has to be back within
// the replay window, also if two hubs do not answer.
const connectWithin = 10 * time.Second

// run posts prompts until the time is over, and waits for each.
func (c *Client) run(until time.Time) {
	defer c.http.CloseIdleConnections()
	began, seconds := time.Now(), c.w.size.Seconds
	if len(seconds) == 0 {
		seconds = []float64{0.2, 2, 15}
	}
	for n := 0; time.Now().Before(until); n++ {
		if rest := c.w.size.Rest; rest > 0 && time.Since(began)%(2*rest) >= rest {
			if !c.w.sleep(2*rest - time.Since(began)%(2*rest)) {
				return
			}
			continue
		}
		id, pictures := fmt.Sprintf("%s-%d", c.name, n), 1
		if c.w.size.Batch > 0 && n%2 == 1 || n%3 == 2 {
			id, pictures = id+batchMark, cmp.Or(c.w.size.Batch, batchSize)
		}
		p := &Prompt{ID: id, Pictures: pictures, Apart: pictures > 1 && n%4 == 3, Client: c.name, Color: 1 + c.rand.IntN(1<<24-1), Seconds: seconds[c.rand.IntN(len(seconds))]}
		c.w.Trace.Decide(c.name, "%s %06x %g", p.ID, p.Color, p.Seconds)
		c.Ask(p)
		if !c.w.sleep(time.Duration(c.rand.IntN(2000)) * time.Millisecond) {
			return
		}
	}
}

// Ask posts a prompt and follows it to its end.
func (c *Client) Ask(p *Prompt) {
	if c.socket {
		c.listenTo(p)
	} else {
		c.poll(p)
	}
}

// Hub is the number of the hub that it talks to, from 0.
func (c *Client) Hub() int { return int(c.hub.Load()) }

// next goes to another hub.
func (c *Client) next() bool {
	c.hub.Store((c.hub.Load() + 1) % int64(len(c.w.Hubs)))
	return c.w.sleep(500 * time.Millisecond)
}

func (c *Client) url() string { return c.w.Hubs[c.Hub()].URL() }

// post posts a prompt until a hub has accepted it.
func (c *Client) post(p *Prompt) bool {
	body, _ := json.Marshal(map[string]any{"prompt": json.RawMessage(p.graph()), "prompt_id": p.ID, "client_id": c.name})
	for {
		status, answer, err := c.call(http.MethodPost, "/prompt", body)
		switch {
		case err == nil && status == http.StatusOK:
			p.Accepted = time.Now()
			c.w.Trace.Note([]string{p.ID, c.name}, "%s accepted by hub%d", p.ID, c.Hub()+1)
			c.ledger.accepted(p)
			return true
		case err == nil && status < 500 && status != http.StatusTooManyRequests:
			c.ledger.breach(p.ID, "hub%d refused a good prompt with %d: %.300s", c.Hub()+1, status, answer)
			return false
		}
		if !c.next() {
			return false
		}
	}
}

func (c *Client) call(method, path string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(c.w.ended, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.url()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// poll posts a prompt and asks for its history until it is there.
func (c *Client) poll(p *Prompt) {
	if !c.post(p) {
		return
	}
	for c.w.sleep(time.Second) {
		if c.look(p) == isThere {
			p.Told = time.Now()
			return
		}
	}
}

// found is what a look at the history has found.
type found int

const (
	unanswered found = iota
	isMissing
	isThere
)

// savedImage is one in a history entry.
type savedImage struct{ Filename, Subfolder, Type string }

// look looks for the prompt in the history, and checks its picture.
func (c *Client) look(p *Prompt) found {
	status, answer, err := c.call(http.MethodGet, "/history/"+url.PathEscape(p.ID), nil)
	if err != nil || status != http.StatusOK {
		c.next()
		return unanswered
	}
	var history map[string]struct {
		Outputs map[string]struct{ Images []savedImage }
		Status  struct {
			Text     string `json:"status_str"`
			Messages json.RawMessage
		}
	}
	if err := json.Unmarshal(answer, &history); err != nil {
		c.ledger.breach(p.ID, "no history: %v: %.300s", err, answer)
		return isThere
	}
	entry, ended := history[p.ID]
	if !ended {
		return isMissing
	}
	if entry.Status.Text != "success" {
		if err := c.w.deaths.excuse(string(entry.Status.Messages), p.Accepted); err != nil {
			c.ledger.breach(p.ID, "%v", err)
		}
		return isThere
	}
	var images []savedImage
	for _, saver := range p.savers() {
		images = append(images, entry.Outputs[saver].Images...)
	}
	if len(images) != max(p.Pictures, 1) {
		c.ledger.breach(p.ID, "it has %d pictures: %.300s", len(images), answer)
		return isThere
	}
	for n, i := range images {
		c.view(p, n, url.Values{"filename": {i.Filename}, "subfolder": {i.Subfolder}, "type": {i.Type}})
	}
	return isThere
}

// view looks at a prompt's nth picture.
func (c *Client) view(p *Prompt, n int, q url.Values) {
	for giveUp := time.Now().Add(settleWithin); time.Now().Before(giveUp); {
		status, picture, err := c.call(http.MethodGet, "/view?"+q.Encode(), nil)
		lost := c.w.Disk.lapse.since(p.Accepted)
		if err == nil && status == http.StatusOK {
			if err := p.shows(picture, n); err != nil && !(lost && isBroken(picture)) {
				c.ledger.breach(p.ID, "its picture %s: %v", q.Get("filename"), err)
			}
			return
		}
		if err == nil && status == http.StatusNotFound {
			if lost {
				return
			}
			c.ledger.breach(p.ID, "its picture %s is not there", q.Get("filename"))
			return
		}
		if !c.next() {
			return
		}
	}
	c.ledger.breach(p.ID, "nobody gives its picture %s", q.Get("filename"))
}

var errDone = errors.New("the end was told")

// listenTo follows a prompt on sockets, the first of which is opened before it is posted.
func (c *Client) listenTo(p *Prompt) {
	for {
		ctx, cancel := context.WithTimeout(c.w.ended, connectWithin)
		socket, _, err := websocket.Dial(ctx, c.url()+"/ws?clientId="+c.name, &websocket.DialOptions{HTTPClient: c.http})
		cancel()
		if err != nil {
			if !c.next() {
				return
			}
			continue
		}
		socket.SetReadLimit(64 << 20)
		if p.Accepted.IsZero() && !c.post(p) {
			_ = socket.CloseNow()
			return
		}
		err = c.follow(socket, p)
		_ = socket.CloseNow()
		if errors.Is(err, errDone) {
			p.Told = time.Now()
			c.check(p)
			return
		}
		c.w.Trace.Note([]string{c.name, p.ID}, "%s lost its socket at hub%d: %v", c.name, c.Hub()+1, err)
		if back := c.rand.IntN(2) == 0; back && !c.w.sleep(500*time.Millisecond) || !back && !c.next() {
			return
		}
	}
}

// check looks for a prompt whose end was told: it can be read from then on.
func (c *Client) check(p *Prompt) {
	for {
		look := c.look(p)
		if look == isThere {
			return
		}
		if look == isMissing && c.w.weather.complete(fmt.Sprint("hub", c.Hub()+1), c.w.Hubs) {
			c.ledger.breach(p.ID, "its end was told, and hub%d has no history of it", c.Hub()+1)
			return
		}
		if !c.w.sleep(time.Second) {
			return
		}
	}
}

// pingEvery is how often a client asks whether its socket still works.
const pingEvery = 20 * time.Second

// follow reads a socket until the prompt's end was told.
func (c *Client) follow(socket *websocket.Conn, p *Prompt) error {
	ctx, cancel := context.WithCancelCause(c.w.ended)
	defer cancel(nil)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pingEvery):
			}
			ping, end := context.WithTimeout(ctx, pingEvery)
			err := socket.Ping(ping)
			end()
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	told := map[string]bool{}
	for {
		m, err := c.hear(ctx, socket, told)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if m.ends() {
			told[m.Data.PromptID] = true
			if m.Data.PromptID == p.ID {
				break
			}
		}
	}
	// A moment longer, for what must not come any more.
	linger, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	for {
		if _, err := c.hear(linger, socket, told); err != nil {
			return errDone
		}
	}
}

// message is what a client reads of one.
type message struct {
	Type string
	Data struct {
		Node     *string
		PromptID string `json:"prompt_id"`
	}
}

// ends reports whether a message is the last of its prompt.
func (m message) ends() bool {
	return m.Type == "executing" && m.Data.Node == nil && m.Data.PromptID != ""
}

// hear reads the next message about a prompt. One about a prompt whose end was told on the
// same socket is a breach.
func (c *Client) hear(ctx context.Context, socket *websocket.Conn, told map[string]bool) (message, error) {
	for {
		kind, frame, err := socket.Read(ctx)
		if err != nil {
			return message{}, err
		}
		var m message
		if kind != websocket.MessageText {
			continue
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			c.ledger.breach(c.name, "no message: %.200s", frame)
			return message{}, err
		}
		id := m.Data.PromptID
		if id == "" {
			continue
		}
		if !strings.HasPrefix(id, c.name+"-") {
			c.ledger.breach(id, "%s hears of it: %s", c.name, m.Type)
		}
		c.w.Trace.Note([]string{id}, "%s hears %s at hub%d", c.name, m.Type, c.Hub()+1)
		if told[id] {
			c.ledger.breach(id, "a message %s after its end, on the same socket", m.Type)
		}
		return m, nil
	}
}
