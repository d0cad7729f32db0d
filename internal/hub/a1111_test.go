package hub_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// a1111Server is a simulated A1111 server with an address of its own.
type a1111Server struct {
	*simsd.Server
	url  string
	kill func()
}

func newA1111(t *testing.T, c simsd.Config) *a1111Server {
	t.Helper()
	ln := loopback.Listen()
	s := &a1111Server{Server: simsd.New(c), url: "http://" + ln.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx, ln) }()
	s.kill = func() { cancel(); <-done }
	t.Cleanup(s.kill)
	return s
}

// withA1111 returns a bench whose fleet also has these servers.
func withA1111(t *testing.T, comfyUIs int, servers ...*a1111Server) *bench {
	t.Helper()
	b := newBench(t, comfyUIs, func(b *bench) {
		for _, s := range servers {
			b.settings.A1111 = append(b.settings.A1111, s.url)
		}
	})
	b.readyA1111(len(servers))
	return b
}

// readyA1111 waits until the hub can use count of them.
func (b *bench) readyA1111(count int) {
	b.t.Helper()
	eventually(b.t, func() bool {
		n := 0
		for _, i := range b.hub.Fleet.Instances() {
			if i.Kind == fleet.KindA1111 && i.State == fleet.Idle && b.hub.Inventory.Infos()[i.Name] != nil {
				n++
			}
		}
		return n == count
	}, time.Minute, 5*time.Millisecond)
}

// orders submits a request for A1111 by the plain API, and returns the job's id.
func (b *bench) orders(payload string) (status int, id, text string) {
	b.t.Helper()
	status, body := b.post("/submit", `{"service": "a1111", "workflow": `+payload+`}`)
	if status == http.StatusOK {
		id = plainOf(b.t, body).ID
	}
	return status, id, string(body)
}

// Two A1111 servers and two ComfyUIs work on one queue: each job runs where its kind and its
// checkpoint are, and what the web UI shows does not change.
func TestA1111AndComfyUIInOneQueue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one := newA1111(t, simsd.Config{Models: []string{"one.safetensors", "both.safetensors"}, Loras: []string{"ink"}})
		two := newA1111(t, simsd.Config{Models: []string{"two.safetensors", "both.safetensors"}})
		b := withA1111(t, 2, one, two)
		require.Len(t, b.hub.Dispatch.Instances.Clients(), 2, "pages and lists are those of ComfyUIs")
		var ids, pictures []string
		for n := range 4 {
			for _, payload := range []string{
				`{"prompt": "a", "steps": 2, "width": 16, "height": 16, "override_settings": {"sd_model_checkpoint": "one"}}`,
				`{"prompt": "a", "steps": 2, "width": 16, "height": 16, "override_settings": {"sd_model_checkpoint": "two.safetensors"}}`,
				`{"prompt": "<lora:ink:1>", "steps": 2, "width": 16, "height": 16, "override_settings": {"sd_model_checkpoint": "both"}}`,
			} {
				status, id, text := b.orders(payload)
				require.Equal(t, http.StatusOK, status, text)
				ids = append(ids, id)
			}
			pictures = append(pictures, b.submit(picture(n), "someone"))
		}
		for _, id := range ids {
			entry := b.finished(id)
			require.Len(t, entry.Outputs["1"].Images, 1)
		}
		for _, id := range pictures {
			b.finished(id)
		}
		for _, d := range one.Done() {
			require.NotEqual(t, "two.safetensors", d.Payload.Object("override_settings").String("sd_model_checkpoint"))
		}
		for _, d := range two.Done() {
			require.Contains(t, d.Checkpoint, "two.safetensors [")
		}
		require.Len(t, two.Done(), 4)
		require.Len(t, one.Done(), 8)

		// The pictures of a request are input files: the queue does not hold them.
		var content bytes.Buffer
		require.NoError(t, png.Encode(&content, image.NewGray(image.Rect(0, 0, 4, 4))))
		square := base64.StdEncoding.EncodeToString(content.Bytes())
		status, id, text := b.orders(`{"steps": 1, "width": 8, "height": 8, "init_images": ["data:image/png;base64,` + square + `"], "override_settings": {"sd_model_checkpoint": "one"}}`)
		require.Equal(t, http.StatusOK, status, text)
		b.finished(id)
		done := one.Done()
		require.Equal(t, "img2img", done[len(done)-1].Path)
		require.Equal(t, pyjson.Array{pyjson.String(square)}, done[len(done)-1].Payload.Array("init_images"))
		_, history := b.get("/history/" + id)
		require.NotContains(t, string(history), square)
		require.Contains(t, string(history), `infotexts`)

		status, id, text = b.orders(`{"prompt": "a", "override_settings": {"sd_model_checkpoint": "three"}}`)
		require.Equal(t, http.StatusOK, status, text)
		eventually(t, func() bool {
			_, history := b.get("/history/" + id)
			return strings.Contains(string(history), `the server has no checkpoint \"three\"`)
		}, time.Minute, 5*time.Millisecond)
	})
}

// sd is a client of A1111's API: a program of its own.
type sd struct {
	b    *bench
	name string
	// login is the tenant, "" for none.
	login string
}

// ask makes a request. It is safe in any goroutine.
func (c sd) ask(ctx context.Context, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.b.web.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", c.name)
	r.Header.Set("Content-Type", "application/json")
	if c.login != "" {
		r.SetBasicAuth(c.login, "password")
	}
	return http.DefaultClient.Do(r)
}

// do makes a request and returns the answer.
func (c sd) do(method, path, body string) (status int, answer string) {
	resp, err := c.ask(c.b.t.Context(), method, path, body)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(data) + "|" + err.Error()
	}
	return resp.StatusCode, string(data)
}

// does is do for what must succeed.
func (c sd) does(method, path, body string) string {
	c.b.t.Helper()
	status, answer := c.do(method, path, body)
	require.Equal(c.b.t, http.StatusOK, status, "%s %s: %s", method, path, answer)
	return answer
}

// made is the answer to a request for pictures.
type made struct {
	Images     []string
	Parameters map[string]any
	Info       string
}

func (c sd) made(path, body string) made {
	c.b.t.Helper()
	answer := c.does("POST", "/sdapi/v1/"+path, body)
	m := decoded[made](c.b.t, answer)
	return m
}

// running waits until so many servers work.
func (b *bench) running(count int, servers ...*a1111Server) {
	b.t.Helper()
	eventually(b.t, func() bool {
		n := 0
		for _, s := range servers {
			if s.Busy() {
				n++
			}
		}
		return n == count
	}, time.Minute, time.Millisecond)
}

// A caller sees what its job has made so far, skips a picture, and stops the job with those that it
// has; it neither sees nor stops another's.
func TestA1111Callers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{StepTime: time.Millisecond})
		b := withA1111(t, 0, server)
		ann, eve := sd{b: b, name: "ann"}, sd{b: b, name: "eve"}
		answer := make(chan string, 1)
		go func() {
			_, text := ann.do("POST", "/sdapi/v1/txt2img", `{"prompt": "a cat", "steps": 1000000, "width": 8, "height": 8, "n_iter": 3, "force_task_id": "task(1)"}`)
			answer <- text
		}()
		b.running(1, server)
		sees := func(c sd, want string) func() bool {
			return func() bool { return strings.Contains(c.does("GET", "/sdapi/v1/progress", ""), want) }
		}
		for _, want := range []string{`"sampling_steps": 1000000`, `"job_count": 3`, `"current_image": "`} {
			eventually(t, sees(ann, want), time.Minute, 10*time.Millisecond)
			require.False(t, sees(eve, want)())
		}
		require.NotContains(t, ann.does("GET", "/sdapi/v1/progress?skip_current_image=true", ""), `"current_image": "`)
		task := func() string { return ann.does("POST", "/internal/progress", `{"id_task": "task(1)"}`) }
		require.Contains(t, task(), `"active": true`)
		eve.does("POST", "/sdapi/v1/skip", "")
		eve.does("POST", "/sdapi/v1/interrupt", "")
		b.running(1, server)
		require.True(t, sees(ann, `"job_no": 0`)())
		ann.does("POST", "/sdapi/v1/skip", "")
		eventually(t, sees(ann, `"job_no": 1`), time.Minute, 10*time.Millisecond)
		require.Equal(t, "{}", ann.does("POST", "/sdapi/v1/interrupt", ""))
		m := decoded[made](t, <-answer)
		require.Len(t, m.Images, 2, "what it has by then")
		data := must(base64.StdEncoding.DecodeString(m.Images[0]))(t)
		require.Contains(t, string(data), "tEXtparameters\x00a cat\nSteps: ", "the picture as A1111 made it")
		require.Contains(t, m.Info, "a cat")
		require.Contains(t, task(), `"completed": true`)
	})
}
