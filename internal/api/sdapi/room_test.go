package sdapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/apitest"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// bench is the room on a hub that runs nothing by itself.
type bench struct {
	*apitest.Server
	apitest.Jobs

	settings config.Settings
	servers  []*comfyui.Client
	kept     map[string][]byte // of users
	doubted  atomic.Int64
}

func newBench(t *testing.T, servers ...http.Handler) *bench {
	t.Helper()
	b := &bench{settings: config.Settings{}.WithDefaults(), kept: map[string][]byte{}}
	for _, s := range servers {
		web := httptest.NewServer(s)
		t.Cleanup(web.Close)
		c, err := comfyui.NewClient(web.URL, comfyui.Options{})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		b.servers = append(b.servers, c)
	}
	users := userdata.New(b, nil)
	b.Server = apitest.Serve(t, func(requests *api.Requests) []api.Optional {
		return []api.Optional{Routes(func() Core {
			return Core{Settings: &b.settings, Users: users, Submitter: b, Canceller: b, Jobs: b, Watches: b, Insight: b, Links: b, Classes: b, Servers: b}
		}, requests)}
	})
	return b
}

func (b *bench) A1111(string) []*comfyui.Client { return b.servers }
func (b *bench) Doubt(*comfyui.Client)          { b.doubted.Add(1) }
func (b *bench) ClientOf(string) *comfyui.Client {
	if len(b.servers) == 0 {
		return nil
	}
	return b.servers[0]
}

// Known says that there is a checkpoint "b".
func (b *bench) Known(string) *pyjson.Object {
	v, _ := pyjson.Parse([]byte(`{"input": {"required": {"checkpoint": [["b"], {}]}}}`))
	return v.(*pyjson.Object)
}

func (b *bench) File(context.Context, string, job.FileRef) (links.File, error) {
	return links.File{Size: 3, Open: func(context.Context, int64, int64) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("png")), nil
	}}, nil
}

// Write and the other three implement userdata.Storage.
func (b *bench) Write(_ context.Context, key string, r io.Reader) (int64, error) {
	data, err := io.ReadAll(r)
	b.kept[key] = data
	return int64(len(data)), err
}

func (b *bench) OpenSized(_ context.Context, key string, _, _, _ int64) (io.ReadCloser, error) {
	if _, ok := b.kept[key]; !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b.kept[key])), nil
}

func (b *bench) Stat(_ context.Context, key string) (userdata.Blob, error) {
	if _, ok := b.kept[key]; !ok {
		return userdata.Blob{}, fs.ErrNotExist
	}
	return userdata.Blob{Key: key, Size: int64(len(b.kept[key]))}, nil
}

func (b *bench) Delete(_ context.Context, key string) error                    { delete(b.kept, key); return nil }
func (b *bench) List(context.Context, string, func(userdata.Blob) error) error { return nil }

// shows is a history entry in which a server has answered with rest and so many pictures.
func shows(rest string, pictures int) string {
	images := strings.TrimSuffix(strings.Repeat(`{"filename": "a.png", "subfolder": "", "type": "output"}, `, pictures), ", ")
	return fmt.Sprintf(`{"outputs": {%q: {"sdapi": [%q], "images": [%s]}}, "status": {"status_str": "success", "messages": []}}`, a1111.JobNode, rest, images)
}

// failed is a history entry with an error.
func failed(data string) string {
	return `{"outputs": {}, "status": {"status_str": "error", "messages": [["execution_error", ` + data + `]]}}`
}

var ann, bob, eve = apitest.Client{Program: "ann"}, apitest.Client{Program: "bob"}, apitest.Client{Tenant: "eve", Program: "ann"}

// Every route that makes a job answers in A1111's form, and so does every error.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, body string
		state      job.State
		entry      string
		status     int
		answer     string
	}{
		"pictures": {"txt2img", `{}`, job.Done, shows(`{"parameters": {"steps": 5}, "info": "i"}`, 2), 200, `{"images": ["cG5n", "cG5n"], "parameters": {"steps": 5}, "info": "i"}`},
		"hidden":   {"img2img", `{"send_images": false}`, job.Done, shows(`{"parameters": {}, "info": "i"}`, 2), 200, `{"images": [], "parameters": {"send_images": false}, "info": "i"}`},
		"one":      {"extra-single-image", `{}`, job.Done, shows(`{"html_info": "h"}`, 1), 200, `{"image": "cG5n", "html_info": "h"}`},
		"text":     {"interrogate", `{}`, job.Done, shows(`{"caption": "c"}`, 0), 200, `{"caption": "c"}`},
		"a server's refusal": {
			"txt2img", `{}`, job.Failed, failed(`{"a1111_answer": {"status": 404, "answer": {"error": "HTTPException", "detail": "Sampler not found", "body": "", "errors": ""}}}`),
			404, `{"error": "HTTPException", "detail": "Sampler not found", "body": "", "errors": ""}`,
		},
		"an error":          {"txt2img", `{}`, job.Failed, failed(`{"exception_type": "KeyError", "exception_message": "k"}`), 500, `{"error": "KeyError", "detail": "k", "body": "", "errors": "k"}`},
		"cancelled":         {"txt2img", `{}`, job.Cancelled, "", 200, `"images": []`},
		"cancelled, no way": {"png-info", `{}`, job.Cancelled, "", 500, `"detail": "The job was cancelled"`},
		"no answer":         {"txt2img", `{}`, job.Done, shows(`[]`, 0), 500, `"error": "HTTPException"`},
		"a list":            {"txt2img", `[1]`, "", "", 422, `{"detail": [{"loc": ["body"], "msg": "value is not a valid dict", "type": "type_error.dict"}]}`},
		"no JSON":           {"txt2img", `{"a": `, "", "", 422, `"type": "value_error.jsondecode"`},
		"odd overrides":     {"txt2img", `{"override_settings": 5}`, "", "", 422, `"loc": ["body", "override_settings"]`},
		"an odd checkpoint": {"txt2img", `{"override_settings": {"sd_model_checkpoint": 5}}`, "", "", 422, `"loc": ["body", "override_settings", "sd_model_checkpoint"]`},
		"a long id":         {"txt2img", `{"force_task_id": "` + strings.Repeat("x", 300) + `"}`, "", "", 422, `"loc": ["body", "force_task_id"]`},
		"another method":    {"samplers", `{}`, "", "", 405, `{"detail": "Method Not Allowed"}`},
		"no route":          {"nowhere", `{}`, "", "", 404, ``},
		"upper case":        {"TXT2IMG", `{}`, "", "", 404, `{"detail": "Not Found"}`},
		"a slash more":      {"txt2img/", `{}`, "", "", 404, `{"detail": "Not Found"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, http.NotFoundHandler())
			b.Does = func(submit.Submission) (job.State, string) { return c.state, c.entry }
			status, answer := b.Ask(ann, "POST", prefix+c.path, c.body)
			require.Equal(t, c.status, status, answer)
			require.Contains(t, answer, c.answer)
		})
	}
}

// A client that hangs up takes its job with it. One that is refused has none.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, hangUp := context.WithCancel(t.Context())
		_, ended := b.Begin(ctx, ann, "POST", prefix+"txt2img", `{}`)
		synctest.Wait()
		live, _ := b.Live(ctx, job.DefaultTenant)
		require.Len(t, live, 1)
		b.Slots = 1
		status, _ := b.Ask(bob, "POST", prefix+"txt2img", `{}`)
		require.Equal(t, http.StatusTooManyRequests, status)
		hangUp()
		<-ended
		live, _ = b.Live(t.Context(), job.DefaultTenant)
		require.Empty(t, live)
	})
}

// A silent request is kept alive by white space. An error after that is no good answer, though
// the status has been sent.
func TestKeptAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var id string
		b.Taken = func(s submit.Submission) error { id = s.ID; return nil }
		for state, entry := range map[job.State]string{job.Done: shows(`{"parameters": {}, "info": ""}`, 1), job.Failed: failed(`{"exception_type": "KeyError", "exception_message": "k"}`)} {
			w, ended := b.Begin(t.Context(), ann, "POST", prefix+"txt2img", `{}`)
			<-time.After(quiet + 3*beat + time.Second)
			b.End(id, state, entry)
			require.Equal(t, state == job.Failed, <-ended, "the connection is cut")
			require.Equal(t, http.StatusOK, w.Code)
			require.True(t, w.Flushed)
			require.Equal(t, 4, w.Body.Len()-len(bytes.TrimLeft(w.Body.Bytes(), " ")))
		}
	})
}

// Each caller sees and stops its own job only, whoever else has one at the same tenant.
func TestCallers(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + r.URL.Query().Get(a1111.RunKey)
		_, _ = io.WriteString(w, `{"progress": 0.5, "eta_relative": 3, "textinfo": null, "current_image": "aa"}`)
	}))
	ids := map[string]string{}
	begin := func(c apitest.Client, task string) {
		taken := make(chan string, 1)
		b.Taken = func(s submit.Submission) error { taken <- s.ID; return nil }
		_, _ = b.Begin(t.Context(), c, "POST", prefix+"txt2img", `{"force_task_id": "`+task+`"}`)
		ids[task] = <-taken
		require.Eventually(t, func() bool { j, _ := b.Find(t.Context(), job.DefaultTenant, ids[task]); return j.Key != "" }, time.Minute, time.Millisecond)
	}
	task := func(c apitest.Client, id string) string {
		return b.Gets(c, "POST", "/internal/progress", `{"id_task": "`+id+`"}`)
	}
	begin(ann, "ann")
	begin(bob, "bob")
	begin(bob, "waits")
	b.Run(ids["ann"], "one")
	b.Run(ids["bob"], "one")
	require.Contains(t, b.Gets(bob, "GET", prefix+"progress", ""), `"progress": 0.5`)
	require.Equal(t, "GET "+a1111.ProgressPath+" "+ids["bob"], <-asked)
	require.Contains(t, b.Gets(eve, "GET", prefix+"progress", ""), `"job_count": 0`)
	require.Contains(t, task(ann, "ann"), `"active": true, "queued": false, "completed": false, "progress": 0.5, "eta": 3, "live_preview": "data:image/png;base64,aa"`)
	<-asked
	require.Contains(t, task(ann, "bob"), `"active": false, "queued": false, "completed": false`, "another's task is none")
	require.Contains(t, task(bob, "waits"), `"active": false, "queued": true, "completed": false, "progress": 0.0, "eta": 0.0, "live_preview": null, "id_live_preview": -1, "textinfo": "In queue: 1"`)
	require.Equal(t, `{"size": 1, "tasks": ["waits"]}`, b.Gets(bob, "GET", "/internal/pending-tasks", ""))

	for _, order := range []string{"interrupt", "skip"} {
		b.Gets(eve, "POST", prefix+order, "")
		require.Empty(t, asked)
	}
	require.Equal(t, "null", b.Gets(bob, "POST", prefix+"skip", ""))
	require.Equal(t, "POST "+a1111.SkipPath+" "+ids["bob"], <-asked)
	require.Equal(t, "{}", b.Gets(bob, "POST", prefix+"interrupt", ""))
	require.Equal(t, "POST "+a1111.InterruptPath+" "+ids["bob"], <-asked)
	b.End(ids["bob"], job.Done, shows(`{"parameters": {}, "info": ""}`, 1))
	require.Contains(t, task(bob, "bob"), `"completed": true`)
	b.Gets(bob, "POST", prefix+"interrupt", "")
	require.Empty(t, asked, "what waits is cancelled")
	require.Equal(t, `{"size": 0, "tasks": []}`, b.Gets(bob, "GET", "/internal/pending-tasks", ""))
	b.End(ids["ann"], job.Done, shows(`{}`, 0))
}

// Options are the tenant's own, and change nothing for anybody else.
func TestOptions(t *testing.T) {
	t.Parallel()
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"sd_model_checkpoint": "a", "CLIP_stop_at_last_layers": 1, "sd_vae": null, "samples_format": "png", "civitai_api_key": "secret"}`)
	}))
	ann := apitest.Client{Tenant: "ann"}
	require.Equal(t, "null", b.Gets(ann, "POST", prefix+"options", `{"sd_model_checkpoint": "b", "CLIP_stop_at_last_layers": 2, "samples_format": "png", "civitai_api_key": ""}`))
	for _, kept := range b.kept {
		require.Equal(t, `{"sd_model_checkpoint": "b", "CLIP_stop_at_last_layers": 2}`, string(kept), "what is as on the server is not kept")
	}
	require.Contains(t, b.Gets(ann, "GET", prefix+"options", ""), `"sd_model_checkpoint": "b"`)
	require.Contains(t, b.Gets(eve, "GET", prefix+"options", ""), `{"sd_model_checkpoint": "a", "CLIP_stop_at_last_layers": 1,`)
	require.Contains(t, b.Gets(eve, "GET", prefix+"options", ""), `"civitai_api_key": ""`, "the operator's secret")
	for body, want := range map[string]struct {
		status int
		answer string
	}{
		`{"nothing": 1}`:                {500, `"error": "KeyError"`},
		`{"sd_model_checkpoint": "no"}`: {500, `"errors": "model 'no' not found"`},
		`{"sd_model_checkpoint": 5}`:    {500, `"error": "TypeError"`},
		`[]`:                            {422, `"value is not a valid dict"`},
		`{"sd_vae": "` + strings.Repeat("x", 70<<10) + `"}`: {413, ``},
	} {
		status, answer := b.Ask(ann, "POST", prefix+"options", body)
		require.Equal(t, want.status, status, answer)
		require.Contains(t, answer, want.answer)
	}
	var graph string
	b.Taken = func(s submit.Submission) error { graph = string(s.Graph.Bytes()); return errors.New("enough") }
	b.Ask(ann, "POST", prefix+"txt2img", `{}`)
	require.Contains(t, graph, `CLIP_stop_at_last_layers`, "they go with its jobs")
	b.Ask(eve, "POST", prefix+"txt2img", `{}`)
	require.NotContains(t, graph, `CLIP_stop_at_last_layers`)
	b.Gets(ann, "POST", prefix+"options", `{"sd_model_checkpoint": null, "CLIP_stop_at_last_layers": 1, "sd_vae": null}`)
	for _, kept := range b.kept {
		require.Equal(t, "{}", string(kept))
	}
}

// Lists combine those of all servers; what is no route of the hub is passed on as far as the
// operator allows.
func TestServers(t *testing.T) {
	t.Parallel()
	two := simsd.New(simsd.Config{Models: []string{"two.safetensors", "both.safetensors"}, Loras: []string{"ink", "oil"}})
	b := newBench(t, simsd.New(simsd.Config{Models: []string{"one.safetensors", "both.safetensors"}, Loras: []string{"ink"}}), two)
	two.AddModel("new.safetensors")
	require.Equal(t, "null", b.Gets(ann, "POST", prefix+"refresh-checkpoints", ""))
	require.EqualValues(t, 2, b.doubted.Load())
	for path, want := range map[string]int{"sd-models": 4, "loras": 2, "samplers": 2, "schedulers": 1, "sd-vae": 1} {
		list, err := pyjson.Parse([]byte(b.Gets(ann, "GET", prefix+path, "")))
		require.NoError(t, err)
		require.Len(t, list, want, path)
	}
	for _, want := range []struct {
		c            apitest.Client
		method, path string
		status       int
	}{
		{ann, "GET", "/controlnet/model_list", 200},
		{eve, "GET", "/controlnet/model_list", 200},
		{ann, "POST", "/controlnet/detect", 404},
		{eve, "POST", "/controlnet/detect", 403},
		{ann, "POST", prefix + "server-kill", 403},
		{ann, "POST", prefix + "create/embedding", 403},
		{ann, "DELETE", prefix + "txt2img", 405},
	} {
		status, answer := b.Ask(want.c, want.method, want.path, "{}")
		require.Equal(t, want.status, status, "%s %s: %s", want.method, want.path, answer)
	}
	for _, off := range []bool{false, true, false} {
		b.settings.NoA1111API = off
		status, _ := b.Ask(ann, "GET", prefix+"progress", "")
		require.Equal(t, off, status == http.StatusNotFound)
	}
	b.servers = nil
	for _, path := range []string{"samplers", "options", "memory", "cmd-flags"} {
		status, answer := b.Ask(ann, "GET", prefix+path, "")
		require.Equal(t, http.StatusServiceUnavailable, status, path)
		require.Contains(t, answer, `"detail": "No A1111 server is connected to the hub"`)
	}
}
