package hub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

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

// Ten clients at once, who know nothing of a hub, each get the picture that they have asked for.
func TestA1111Clients(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		servers := []*a1111Server{newA1111(t, simsd.Config{StepTime: time.Millisecond}), newA1111(t, simsd.Config{StepTime: time.Millisecond})}
		b := withA1111(t, 0, servers...)
		var wait sync.WaitGroup
		answers := make([]string, 10)
		for n := range answers {
			wait.Go(func() {
				_, answers[n] = sd{b: b, name: fmt.Sprint("client", n)}.do("POST", "/sdapi/v1/txt2img", fmt.Sprintf(`{"prompt": "a %d", "seed": %d, "steps": 20, "width": 16, "height": 8}`, n, 1000+n))
			})
		}
		wait.Wait()
		for n, answer := range answers {
			m := decoded[made](t, answer)
			require.Len(t, m.Images, 1)
			data := must(base64.StdEncoding.DecodeString(m.Images[0]))(t)
			require.Contains(t, string(data), fmt.Sprintf("tEXtparameters\x00a %d\nSteps: 20", n), "the picture as A1111 made it")
			picture := must(png.Decode(bytes.NewReader(data)))(t)
			red, _, _, _ := picture.At(0, 0).RGBA()
			require.Equal(t, uint8(1000+n), uint8(red>>8))
			require.InDelta(t, 20, m.Parameters["steps"], 0)
			require.Contains(t, m.Info, fmt.Sprintf(`"seed": %d`, 1000+n))
		}
		require.Len(t, append(servers[0].Done(), servers[1].Done()...), 10)
		require.NotEmpty(t, servers[0].Done())
		require.NotEmpty(t, servers[1].Done())
		_, history := b.get("/history")
		require.Equal(t, 10, strings.Count(string(history), `"filename"`), "the other rooms have the pictures, too")
	})
}

// Every route that makes a job answers in A1111's form, and so does every error.
func TestA1111Answers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{})
		b := withA1111(t, 0, server)
		c := sd{b: b, name: "webuiapi"}
		first := c.made("txt2img", `{"prompt": "a cat", "seed": 5, "steps": 1, "width": 16, "height": 8}`)
		image := first.Images[0]
		again := c.made("img2img", `{"prompt": "a dog", "init_images": ["data:image/png;base64,`+image+`"], "steps": 1, "width": 8, "height": 8, "n_iter": 3, "forge_extra": {"kept": 1}}`)
		require.Len(t, again.Images, 3)
		require.Contains(t, server.Done()[1].Payload.Keys(), "forge_extra", "what the hub does not know passes")
		hidden := c.made("txt2img", `{"prompt": "a cat", "steps": 1, "width": 16, "height": 8, "send_images": false}`)
		require.Empty(t, hidden.Images)
		require.Equal(t, false, hidden.Parameters["send_images"])
		for _, want := range []struct{ path, body, answer string }{
			{"extra-single-image", `{"image": "` + image + `"}`, `{"image": "iVBOR`},
			{"extra-batch-images", `{"imageList": [{"data": "` + image + `", "name": "a"}]}`, `{"images": ["iVBOR`},
			{"png-info", `{"image": "` + image + `"}`, `{"info": "a cat\nSteps: 1`},
			{"interrogate", `{"image": "` + image + `", "model": "clip"}`, `{"caption": "a painting of a square"}`},
		} {
			answer := c.does("POST", "/sdapi/v1/"+want.path, want.body)
			require.True(t, strings.HasPrefix(answer, want.answer), answer[:min(len(answer), 200)])
		}
		for _, want := range []struct {
			path, body string
			status     int
			answer     string
		}{
			{"txt2img", `{"sampler_name": "x"}`, 404, `{"error": "HTTPException", "detail": "Sampler not found", "body": "", "errors": ""}`},
			{"txt2img", `{"steps": "x"}`, 422, `{"detail": [{"loc": ["body", "steps"], "msg": "value is not a valid integer", "type": "type_error.integer"}]}`},
			{"img2img", `{}`, 404, `{"error": "HTTPException", "detail": "Init image not found", "body": "", "errors": ""}`},
			{"img2img", `{"init_images": ["x"]}`, 500, `{"error": "HTTPException", "detail": "Invalid encoded image", "body": "", "errors": ""}`},
			{"txt2img", `[1]`, 422, `{"detail": [{"loc": ["body"], "msg": "value is not a valid dict", "type": "type_error.dict"}]}`},
			{"txt2img", `{"a": `, 422, `"type": "value_error.jsondecode"`},
			{"txt2img", `{"override_settings": 5}`, 422, `"loc": ["body", "override_settings"]`},
			{"txt2img", `{"override_settings": {"sd_model_checkpoint": 5}}`, 422, `"loc": ["body", "override_settings", "sd_model_checkpoint"]`},
			{"txt2img", `{"force_task_id": "` + strings.Repeat("x", 300) + `"}`, 422, `"loc": ["body", "force_task_id"]`},
			{"txt2img", `{"override_settings": {"sd_model_checkpoint": "none"}}`, 500, `"errors": "the server has no checkpoint \"none\""`},
			{"samplers", `{}`, 405, `{"detail": "Method Not Allowed"}`},
			{"nowhere", `{}`, 404, `{"detail": "Not Found"}`},
		} {
			status, answer := c.do("POST", "/sdapi/v1/"+want.path, want.body)
			require.Equal(t, want.status, status, "%s: %s", want.path, answer)
			require.Contains(t, answer, want.answer)
		}
		server.Break("KeyError")
		status, answer := c.do("POST", "/sdapi/v1/txt2img", `{}`)
		require.Equal(t, http.StatusInternalServerError, status)
		require.Contains(t, answer, `{"error": "KeyError", "detail": "",`)
	})
}

// A client that hangs up takes its job with it, whether it runs or waits.
func TestA1111ClientLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{StepTime: time.Millisecond})
		b := withA1111(t, 0, server)
		c := sd{b: b, name: "leaver"}
		var gone []func()
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				resp, err := c.ask(ctx, "POST", "/sdapi/v1/txt2img", `{"steps": 1000000, "width": 8, "height": 8}`)
				if err == nil {
					_ = resp.Body.Close()
				}
				done <- err
			}()
			gone = append(gone, func() {
				cancel()
				require.ErrorIs(t, <-done, context.Canceled)
			})
		}
		live := func() int {
			jobs := must(b.hub.Jobs().Live(t.Context(), "default"))(t)
			return len(jobs)
		}
		eventually(t, func() bool { return live() == 2 && server.Busy() }, time.Minute, time.Millisecond)
		for _, hangUp := range gone {
			hangUp()
		}
		eventually(t, func() bool { return live() == 0 && !server.Busy() }, time.Minute, time.Millisecond)
	})
}

// A silent request is kept alive by white space. An error after that is no good answer, though
// the status has been sent.
func TestA1111KeptAlive(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{StepTime: time.Millisecond})
		b := withA1111(t, 0, server)
		b.rooms.KeepAlive(10*time.Millisecond, 10*time.Millisecond)
		c := sd{b: b, name: "patient"}
		resp := must(c.ask(t.Context(), "POST", "/sdapi/v1/txt2img", `{"prompt": "a cat", "steps": 200, "width": 8, "height": 8}`))(t)
		data := must(io.ReadAll(resp.Body))(t)
		require.NoError(t, resp.Body.Close())
		require.Greater(t, len(data)-len(bytes.TrimLeft(data, " ")), 3)
		m := decoded[made](t, data)
		require.Len(t, m.Images, 1)

		blocker := make(chan struct{})
		go func() {
			defer close(blocker)
			_, _ = sd{b: b, name: "blocker"}.do("POST", "/sdapi/v1/txt2img", `{"steps": 1000000, "width": 8, "height": 8}`)
		}()
		b.running(1, server)
		resp, err := c.ask(t.Context(), "POST", "/sdapi/v1/txt2img", `{"sampler_name": "x"}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_, _ = sd{b: b, name: "blocker"}.do("POST", "/sdapi/v1/interrupt", "")
		data, err = io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the connection is cut")
		require.Contains(t, string(data), "Sampler not found")
		<-blocker
	})
}

// Each caller sees and stops its own job only, whoever else has one at the same tenant.
func TestA1111Callers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		servers := []*a1111Server{newA1111(t, simsd.Config{StepTime: time.Millisecond}), newA1111(t, simsd.Config{StepTime: time.Millisecond})}
		b := withA1111(t, 0, servers...)
		ann, bob, eve := sd{b: b, name: "ann"}, sd{b: b, name: "bob"}, sd{b: b, name: "ann", login: "eve"}
		answers := map[string]chan string{}
		begin := func(c sd, as, body string) {
			answer := make(chan string, 1)
			answers[as] = answer
			go func() {
				_, text := c.do("POST", "/sdapi/v1/txt2img", body)
				answer <- text
			}()
		}
		const endless = `{"prompt": "a %s", "steps": 1000000, "width": 8, "height": 8, "seed": 7, "n_iter": 2, "force_task_id": "task(%s)"}`
		begin(ann, "ann", fmt.Sprintf(endless, "ann", "ann"))
		b.running(1, servers...)
		begin(bob, "bob", fmt.Sprintf(endless, "bob", "bob"))
		b.running(2, servers...)
		begin(bob, "waits", fmt.Sprintf(endless, "bob", "waits"))
		progress := func(c sd, query string) (p struct {
			Progress float64
			State    struct {
				Steps int `json:"sampling_steps"`
				Jobs  int `json:"job_count"`
			}
			Image *string `json:"current_image"`
		},
		) {
			text := c.does("GET", "/sdapi/v1/progress"+query, "")
			require.NoError(t, json.Unmarshal([]byte(text), &p), text)
			return p
		}
		for _, c := range []sd{ann, bob} {
			eventually(t, func() bool {
				p := progress(c, "")
				return p.State.Steps == 1000000 && p.State.Jobs == 2 && p.Progress > 0 && p.Image != nil
			}, time.Minute, 10*time.Millisecond)
			require.Nil(t, progress(c, "?skip_current_image=true").Image)
		}
		require.Zero(t, progress(eve, "").State.Jobs)
		task := func(c sd, id string) string {
			_, text := c.do("POST", "/internal/progress", `{"id_task": "task(`+id+`)"}`)
			return text
		}
		eventually(t, func() bool { return strings.Contains(task(bob, "waits"), `"active": false, "queued": true`) }, time.Minute, 10*time.Millisecond)
		require.Contains(t, task(ann, "ann"), `"active": true`)
		require.Contains(t, task(ann, "bob"), `"active": false, "queued": false, "completed": false`, "another's task is none")
		_, pending := bob.do("GET", "/internal/pending-tasks", "")
		require.Equal(t, `{"size": 1, "tasks": ["task(waits)"]}`, pending)

		eve.does("POST", "/sdapi/v1/interrupt", "")
		b.running(2, servers...)
		text := ann.does("POST", "/sdapi/v1/interrupt", "")
		require.Equal(t, "{}", text)
		var m made
		text = <-answers["ann"]
		require.NoError(t, json.Unmarshal([]byte(text), &m), text)
		require.Len(t, m.Images, 1, "what it has by then")
		require.Contains(t, m.Info, "a ann")
		require.Contains(t, task(ann, "ann"), `"completed": true`)
		b.running(2, servers...) // what waited has begun

		bob.does("POST", "/sdapi/v1/skip", "")
		eventually(t, func() bool {
			_, text := bob.do("GET", "/sdapi/v1/progress", "")
			return strings.Contains(text, `"job_no": 1`)
		}, time.Minute, 10*time.Millisecond, "the next picture of the job that runs longest")
		for _, as := range []string{"bob", "waits"} {
			bob.does("POST", "/sdapi/v1/interrupt", "")
			text = <-answers[as]
			require.Contains(t, text, "iVBOR")
		}
		require.Zero(t, progress(bob, "").State.Jobs)
	})
}
