package hub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
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
		for _, i := range b.hub.fleet.Instances() {
			if i.Kind == fleet.KindA1111 && i.State == fleet.Idle && b.hub.inventory.Infos()[i.Name] != nil {
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
		require.Len(t, b.hub.dispatch.Instances.Clients(), 2, "pages and lists are those of ComfyUIs")
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

		status, id, text := b.orders(`{"prompt": "a", "override_settings": {"sd_model_checkpoint": "three"}}`)
		require.Equal(t, http.StatusOK, status, text)
		eventually(t, func() bool {
			_, history := b.get("/history/" + id)
			return strings.Contains(string(history), `the server has no checkpoint \"three\"`)
		}, time.Minute, 5*time.Millisecond)
	})
}

// The pictures of a request are input files: the queue does not hold them.
func TestA1111Inputs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var content bytes.Buffer
		require.NoError(t, png.Encode(&content, image.NewGray(image.Rect(0, 0, 4, 4))))
		square := base64.StdEncoding.EncodeToString(content.Bytes())
		sd := newA1111(t, simsd.Config{})
		b := withA1111(t, 0, sd)
		status, id, text := b.orders(`{"steps": 1, "width": 8, "height": 8, "init_images": ["data:image/png;base64,` + square + `"]}`)
		require.Equal(t, http.StatusOK, status, text)
		b.finished(id)
		require.Equal(t, "img2img", sd.Done()[0].Path)
		require.Equal(t, pyjson.Array{pyjson.String(square)}, sd.Done()[0].Payload.Array("init_images"))
		_, history := b.get("/history/" + id)
		require.NotContains(t, string(history), square)
		require.Contains(t, string(history), `infotexts`)
	})
}

// Options are the tenant's own, and change nothing for anybody else.
func TestA1111Options(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newA1111(t, simsd.Config{Models: []string{"a.safetensors", "b.safetensors"}})
		b := withA1111(t, 0, server)
		ann, eve := sd{b: b, name: "x", login: "ann"}, sd{b: b, name: "x", login: "eve"}
		answer := ann.does("POST", "/sdapi/v1/options", `{"sd_model_checkpoint": "b", "CLIP_stop_at_last_layers": 2, "samples_format": "png", "civitai_api_key": ""}`)
		require.Equal(t, "null", answer)
		_, kept := ann.do("GET", "/userdata/a1111.options.json", "")
		require.Equal(t, `{"sd_model_checkpoint": "b", "CLIP_stop_at_last_layers": 2}`, kept, "what is as on the server is not kept")
		_, answer = ann.do("GET", "/sdapi/v1/options", "")
		require.Contains(t, answer, `"sd_model_checkpoint": "b"`)
		_, answer = eve.do("GET", "/sdapi/v1/options", "")
		require.Contains(t, answer, `"sd_model_checkpoint": "a.safetensors [`)
		require.Contains(t, answer, `"civitai_api_key": ""`, "the operator's secret")
		const overrides = `{"steps": 1, "width": 8, "height": 8, "override_settings": {"CLIP_stop_at_last_layers": 3}, "override_settings_restore_afterwards": false}`
		ann.made("txt2img", overrides)
		done := server.Done()[0]
		require.Contains(t, done.Checkpoint, "b.safetensors")
		settings, _ := json.Marshal(done.Payload.Object("override_settings").Keys())
		require.JSONEq(t, `["CLIP_stop_at_last_layers", "sd_model_checkpoint"]`, string(settings))
		eve.made("txt2img", `{"steps": 1, "width": 8, "height": 8}`)
		require.Contains(t, server.Done()[1].Checkpoint, "a.safetensors")
		_, answer = eve.do("GET", "/sdapi/v1/options", "")
		require.Contains(t, answer, `"CLIP_stop_at_last_layers": 1`, "a request changes no server")
		for body, want := range map[string]string{
			`{"nothing": 1}`:                                    `"error": "KeyError"`,
			`{"sd_model_checkpoint": "no"}`:                     `"errors": "model 'no' not found"`,
			`{"sd_model_checkpoint": 5}`:                        `"error": "TypeError"`,
			`{"sd_vae": "` + strings.Repeat("x", 60<<10) + `"}`: "",
			`{"sd_vae": "` + strings.Repeat("x", 70<<10) + `"}`: "",
		} {
			status, answer := ann.do("POST", "/sdapi/v1/options", body)
			if want != "" {
				require.Equal(t, http.StatusInternalServerError, status)
				require.Contains(t, answer, want)
			}
		}
		require.Equal(t, http.StatusRequestEntityTooLarge, statusOf(ann.do("POST", "/sdapi/v1/options", `{"sd_vae": "`+strings.Repeat("x", 70<<10)+`"}`)))
		_, answer = ann.do("POST", "/sdapi/v1/options", `{"sd_model_checkpoint": null, "CLIP_stop_at_last_layers": 1, "sd_vae": null}`)
		require.Equal(t, "null", answer)
		_, kept = ann.do("GET", "/userdata/a1111.options.json", "")
		require.Equal(t, "{}", kept)
	})
}

// Lists combine those of all servers; what is not a route of the hub is passed on as far as the
// operator allows.
func TestA1111Lists(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one := newA1111(t, simsd.Config{Models: []string{"one.safetensors", "both.safetensors"}, Loras: []string{"ink"}})
		two := newA1111(t, simsd.Config{Models: []string{"two.safetensors", "both.safetensors"}, Loras: []string{"ink", "oil"}})
		b := withA1111(t, 1, one, two)
		c, login := sd{b: b, name: "lister"}, sd{b: b, name: "lister", login: "ann"}
		two.AddModel("new.safetensors")
		answer := c.does("POST", "/sdapi/v1/refresh-checkpoints", "")
		require.Equal(t, "null", answer)
		for path, want := range map[string]int{"sd-models": 4, "loras": 2, "samplers": 2, "schedulers": 1, "sd-vae": 1} {
			answer = c.does("GET", "/sdapi/v1/"+path, "")
			list := decoded[[]map[string]any](t, answer)
			require.Len(t, list, want, path)
		}
		for _, path := range []string{"scripts", "embeddings", "cmd-flags", "memory", "script-info", "extensions"} {
			require.Equal(t, http.StatusOK, statusOf(c.do("GET", "/sdapi/v1/"+path, "")), path)
		}
		for _, want := range []struct {
			c            sd
			method, path string
			status       int
		}{
			{c, "GET", "/controlnet/model_list", 200},
			{login, "GET", "/controlnet/model_list", 200},
			{c, "POST", "/controlnet/detect", 404},
			{login, "POST", "/controlnet/detect", 403},
			{c, "POST", "/sdapi/v1/server-kill", 403},
			{c, "POST", "/sdapi/v1/create/embedding", 403},
			{c, "POST", "/sdapi/v1/TXT2IMG", 404},
			{c, "POST", "/sdapi/v1/txt2img/", 404},
			{c, "DELETE", "/sdapi/v1/txt2img", 405},
		} {
			require.Equal(t, want.status, statusOf(want.c.do(want.method, want.path, "{}")), "%s %s %s", want.c.login, want.method, want.path)
		}
	})
}

// The operator may leave the API out: its paths are then those of any custom node. A reload
// switches it.
func TestA1111APISwitch(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for _, off := range []bool{false, true, false} {
			b.settings.NoA1111API = off
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			status, answer := b.get("/sdapi/v1/progress")
			require.Equal(t, off, status == http.StatusNotFound, "%d %s", status, answer)
			b.gets("/system_stats")
		}
	})
}
