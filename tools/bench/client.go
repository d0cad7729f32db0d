package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

// client talks to a ComfyUI, or to what stands for one.
type client struct {
	url string
	id  string // client id of its prompts
	// tenant is whom its requests are for, at a hub that knows tenantSecret; empty for whoever asks.
	tenant string
	http   *http.Client
}

// tenantSecret is what clients show to name tenants.
const tenantSecret = "only-for-benchmarks"

// newClient returns a client that keeps some connections open.
func newClient(url string, connections int) *client {
	return &client{url: url, id: uuid.NewString(), http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections},
		Timeout:   time.Minute,
	}}
}

// body is a POST /prompt of work that takes some seconds. Each nonce makes another
// picture, so that no instance has it in its cache.
func (c *client) body(seconds float64, nonce int) []byte { return body(c.id, seconds, nonce) }

func body(client string, seconds float64, nonce int) []byte {
	// An instance can be interrupted between steps; they take no longer than a second.
	return bodyInSteps(client, seconds, max(4, int(seconds)), nonce)
}

// bodyInSteps is body for work of some steps, each of which ends with a preview.
func bodyInSteps(client string, seconds float64, steps, nonce int) []byte {
	graph := map[string]any{
		"1": node("EmptyImage", map[string]any{"width": 64, "height": 64, "batch_size": 1, "color": nonce}),
		"3": node("SaveImage", map[string]any{"images": []any{"1", 0}, "filename_prefix": "bench"}),
	}
	if seconds > 0 {
		graph["2"] = node("SimulatedWork", map[string]any{"image": []any{"1", 0}, "seconds": seconds, "steps": steps, "nonce": nonce})
		graph["3"] = node("SaveImage", map[string]any{"images": []any{"2", 0}, "filename_prefix": "bench"})
	}
	return bodyOfGraph(client, graph)
}

// bodyOfGraph is a POST /prompt of a graph.
func bodyOfGraph(client string, graph map[string]any) []byte {
	body, err := json.Marshal(map[string]any{"client_id": client, "prompt": graph})
	if err != nil {
		panic(err) // strings and numbers only
	}
	return body
}

// bodyOfSize is a POST /prompt of work that takes a server without a GPU some seconds: a
// picture of so many pixels on each side.
func (c *client) bodyOfSize(pixels, nonce int) []byte {
	return bodyOfGraph(c.id, map[string]any{
		"1": node("EmptyImage", map[string]any{"width": pixels, "height": pixels, "batch_size": 1, "color": nonce}),
		"2": node("SaveImage", map[string]any{"images": []any{"1", 0}, "filename_prefix": "bench"}),
	})
}

func node(class string, inputs map[string]any) map[string]any {
	return map[string]any{"class_type": class, "inputs": inputs}
}

// post posts a prompt and returns its id.
func (c *client) post(ctx context.Context, body []byte) (string, error) {
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	err := c.call(ctx, http.MethodPost, "/prompt", body, &accepted)
	return accepted.ID, err
}

// call sends a request and reads JSON into v, which may be nil.
func (c *client) call(ctx context.Context, method, path string, body []byte, v any) error {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.tenant != "" {
		r.Header.Set("X-ComfyHub-Tenant", c.tenant)
		r.Header.Set("Authorization", "Bearer "+tenantSecret)
	}
	return answer(c.http, r, v)
}

// answer sends a request and reads JSON into v, which may be nil.
func answer(client *http.Client, r *http.Request, v any) error {
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %.300s", r.Method, r.URL.Path, resp.Status, text)
	case v == nil:
		return nil
	}
	return json.Unmarshal(text, v)
}

// listen opens the client's socket.
func (c *client) listen(ctx context.Context) (*websocket.Conn, error) {
	socket, resp, err := websocket.Dial(ctx, c.url+"/ws?clientId="+c.id, nil)
	if err != nil {
		return nil, err
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	socket.SetReadLimit(-1)
	return socket, nil
}

// succeeded reads messages until a prompt has succeeded.
func succeeded(ctx context.Context, socket *websocket.Conn, id string) error {
	for {
		kind, frame, err := socket.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			continue
		}
		var m struct {
			Type string
			Data struct {
				ID string `json:"prompt_id"`
			}
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			return err
		}
		if m.Data.ID != id {
			continue
		}
		switch m.Type {
		case "execution_success":
			return nil
		case "execution_error", "execution_interrupted":
			return fmt.Errorf("%.300s", frame)
		}
	}
}

// began returns when each prompt of the history began.
func (c *client) began(ctx context.Context) (map[string]time.Time, error) {
	return c.times(ctx, func(messages int) int { return 0 })
}

// ended returns when each prompt of the history ended.
func (c *client) ended(ctx context.Context) (map[string]time.Time, error) {
	return c.times(ctx, func(messages int) int { return messages - 1 })
}

// times returns the time of one message of each prompt of the history, given how many it has.
func (c *client) times(ctx context.Context, which func(messages int) int) (map[string]time.Time, error) {
	var all map[string]struct {
		Status struct {
			Completed bool
			Messages  [][2]json.RawMessage
		}
	}
	if err := c.call(ctx, http.MethodGet, "/history", nil, &all); err != nil {
		return nil, err
	}
	list := make(map[string]time.Time, len(all))
	for id, entry := range all {
		messages := entry.Status.Messages
		if !entry.Status.Completed || len(messages) == 0 {
			return nil, fmt.Errorf("prompt %s did not succeed", id)
		}
		var m struct{ Timestamp int64 }
		if err := json.Unmarshal(messages[which(len(messages))][1], &m); err != nil {
			return nil, err
		}
		list[id] = time.UnixMilli(m.Timestamp)
	}
	return list, nil
}

// remaining returns how many prompts wait or run.
func (c *client) remaining(ctx context.Context) (int, error) {
	var prompt struct {
		Info struct {
			Remaining int `json:"queue_remaining"`
		} `json:"exec_info"`
	}
	err := c.call(ctx, http.MethodGet, "/prompt", nil, &prompt)
	return prompt.Info.Remaining, err
}

// empty waits until nothing waits or runs.
func (c *client) empty(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := c.remaining(ctx)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
