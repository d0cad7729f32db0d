package hub_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

const (
	passes     = http.StatusTeapot // what the node packs in these tests answer
	managerOff = `^\{"error": \{"type": "manager_off"`
)

func TestManagerOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{Version: "0.33.0"})
		b := packed(t, p)
		var steps []exchange
		for _, path := range []string{
			// By GET, in version 3.
			"/manager/queue/update_all", "/manager/queue/start", "/manager/queue/reset", "/manager/queue/update_comfyui", "/manager/reboot",
			"/manager/preview_method?value=none", "/manager/db_mode?value=local", "/manager/channel_url_list?value=x", "/manager/share_option?value=all",
			"/manager/policy/component?value=higher", "/manager/get_openart_auth", "/manager/youml/settings", "/snapshot/restore?target=x",
			"/snapshot/remove?target=x", "/snapshot/save", "/snapshot/get_current", "/customnode/fetch_updates", "/externalmodel/getlist",
			"/comfyui_manager/comfyui_switch_version?ver=1", "/comfyui_manager/update_comfyui", "/alternatives/getlist", "/model/install",
			// In version 4.
			"/v2/manager/reboot", "/v2/manager/queue/task", "/v2/snapshot/restore", "/v2/customnode/install/pip", "/v2/comfyui_manager/comfyui_switch_version",
			// In any spelling.
			"/api/manager/reboot", "/%6danager/reboot", "/Manager/reboot", "/manager//reboot", "/manager/", "/manager;x/reboot", "/API/v2/MANAGER/reboot",
			"/manager%2Freboot", "/manager/version/", "/manager/version;x", "/manager/Version",
		} {
			for _, method := range []string{"GET", "POST", "HEAD", "PUT", "DELETE"} {
				step := exchange{method: method, path: path, status: http.StatusForbidden}
				if method != http.MethodHead {
					step.want = managerOff
				}
				steps = append(steps, step)
			}
		}
		for _, path := range []string{
			"/experiment/models/download_missing", "/experiment/models/download_missing/cancel", "/api/experiment/models/download_missing",
			"/assets/download", "/api/assets/download", "/api/tasks/x", "/api/tasks/x/cancel", "/API/Tasks//x", "/api/downloads", "/v2/models/x",
			"/experiment/models/other/new", "/models/download/x", "/api/download-models", "/api/cancel-model-download-session",
			"/api/hf-auth-login-start", "/some-pack/download", "/pack/models.install", "/%64ownload-models",
		} {
			steps = append(steps, exchange{method: "POST", path: path, status: http.StatusForbidden, want: managerOff})
		}
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			for _, path := range []string{"/api/tasks/x", "/api/download-models", "/api/downloads/x"} {
				steps = append(steps, exchange{method: method, path: path, status: http.StatusForbidden, want: managerOff})
			}
		}
		b.play(steps)
		require.Empty(t, p.last(), "nothing has reached the instance")
		b.play([]exchange{
			{method: "POST", path: "/pack/downloaded", status: passes, want: "one"},
			{method: "GET", path: "/pack/download", status: passes, want: "one"},
		})
		b.play([]exchange{
			{method: "GET", path: "/manager/version", status: passes, want: "one"},
			{method: "GET", path: "/api/manager/version", status: passes, want: "one"},
			{method: "GET", path: "/api/v2/manager/queue/status", status: passes, want: "one"},
			{method: "GET", path: "/v2/customnode/installed", status: passes, want: "one"},
			{method: "POST", path: "/manager/version", status: http.StatusForbidden, want: managerOff},
			{method: "GET", path: "/managers/x", status: 404},
		})
		_, resp, err := websocket.Dial(t.Context(), b.web.URL+"/manager/version", nil)
		require.Error(t, err)
		require.Equal(t, http.StatusForbidden, resp.StatusCode)

		b.settings.Manager = true
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		b.tenant = "ada"
		b.play([]exchange{{method: "POST", path: "/manager/reboot", status: passes, want: "one"}})
		require.Equal(t, "POST /manager/reboot ", p.last())
		for _, path := range []string{"/experiment/models/download_missing", "/api/assets/download", "/api/tasks/x"} {
			b.play([]exchange{{method: "POST", path: path, status: passes, want: "one"}})
			require.Equal(t, "POST "+path+" ", p.last())
		}
	})
}

func TestPassthrough(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{Version: "0.33.0"})
		b := packed(t, p)
		const off, read = `^\{"error": \{"type": "passthrough_off"`, `^\{"error": \{"type": "passthrough_read"`
		for _, c := range []struct {
			policy               config.PassthroughPolicy
			tenant               string
			file, read, post, ws int // statuses
		}{
			{"", "", passes, passes, passes, 101},
			{"", "ada", passes, passes, 403, 403},
			{config.PassthroughOn, "ada", passes, passes, passes, 101},
			{config.PassthroughRead, "", passes, passes, 403, 403},
			{config.PassthroughOff, "", passes, 403, 403, 403},
			{config.PassthroughOff, "ada", passes, 403, 403, 403},
		} {
			b.settings.Passthrough, b.tenant = c.policy, c.tenant
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			want := map[int]string{passes: "one"}
			if want[http.StatusForbidden] = read; c.policy == config.PassthroughOff {
				want[http.StatusForbidden] = off
			}
			b.play([]exchange{
				{method: "GET", path: "/extensions/pack/x.js", status: c.file, want: want[c.file]},
				{method: "GET", path: "/pack/x", status: c.read, want: want[c.read]},
				{method: "HEAD", path: "/api/pack/x", status: c.read},
				{method: "GET", path: "/pack/x.json", status: c.read, want: want[c.read]},
				{method: "POST", path: "/pack/x", status: c.post, want: want[c.post]},
				{method: "DELETE", path: "/pack/x", status: c.post, want: want[c.post]},
				{method: "POST", path: "/extensions/pack/x.js", status: c.post, want: want[c.post]},
				// The hub's own routes are not affected.
				{method: "GET", path: "/queue", status: 200, want: `^\{"queue_running"`},
				{method: "POST", path: "/interrupt", status: 200},
			})
			conn, resp, err := websocket.Dial(t.Context(), b.web.URL+"/pack/ws", nil)
			require.Equal(t, c.ws, resp.StatusCode, c)
			if err == nil {
				require.NoError(t, conn.CloseNow())
			}
		}
	})
}

// A socket to a custom node, whose connections are no longer the server's, ends when its
// caller's key does and when the hub does, and takes no place afterwards.
func TestSocketsOfNodesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench){
		"the key is revoked": func(b *bench) {
			must(b.hub.Keys.Revoke(b.t.Context(), "ada"))(b.t)
		},
		"the hub stops": func(b *bench) { b.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPack(t, "one", sim.Config{})
			b := newBench(t, 0, withKeys(api.KeysRequired), func(b *bench) {
				b.settings.Passthrough = config.PassthroughOn
				b.settings.TenantLimits.Sockets = 1
				b.settings.Instances = append(b.settings.Instances, p.URL)
			})
			ada, bob := b.key(apikeys.Wanted{Name: "ada", Tenant: "ada"}), b.key(apikeys.Wanted{Name: "bob", Tenant: "ada"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dial := func(secret string) (*websocket.Conn, error) {
				conn, _, err := websocket.Dial(ctx, b.web.URL+"/pack/ws", &websocket.DialOptions{HTTPHeader: bearer(secret)})
				return conn, err
			}
			conn := must(dial(ada))(t)
			defer conn.CloseNow()
			_, err := dial(bob)
			require.Error(t, err, "the tenant has one")

			end(b)
			_, _, err = conn.Read(ctx)
			require.Error(t, err)
			require.NoError(t, ctx.Err(), "the socket has not ended")
			if !b.hub.Started() {
				return
			}
			eventually(t, func() bool {
				conn, err := dial(bob)
				if err == nil {
					_ = conn.CloseNow()
				}
				return err == nil
			}, time.Minute, 5*time.Millisecond)
		})
	}
}

// What lies below the API's paths and is no route of it never reaches an instance, which would
// show everybody's jobs.
func TestComfyV2PathsStayHere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		i := newInstance(t, sim.Config{})
		front := simtest.Front(t, i.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			if strings.Contains(r.URL.Path, "/v2/") {
				_, _ = io.WriteString(w, "everybody's")
				return
			}
			rest.ServeHTTP(w, r)
		})
		b := newBench(t, 0, func(b *bench) {
			b.settings.Passthrough = config.PassthroughOn
			b.settings.Instances = append(b.settings.Instances, front.URL)
		})
		for path, status := range map[string]int{
			"/v2/other": http.StatusOK, "/v2/jobs": http.StatusNotFound, "/v2/jobs/x": http.StatusNotFound, "/v2/assets/x/content": http.StatusNotFound,
			"/api/v2/jobs/x/y": http.StatusNotFound, "/api/v2/assets": http.StatusMethodNotAllowed, "/api/v2/health/x": http.StatusNotFound,
		} {
			got, answer := b.as("", "GET", path, "")
			require.Equal(t, status, got, path)
			require.Equal(t, status == http.StatusOK, strings.Contains(answer, "everybody's"), path)
		}
	})
}

// oddPrompt is a prompt with odd members. Each is raw JSON, or "" for none.
type oddPrompt struct{ number, extra, client, id, value string }

func (o oddPrompt) body() string {
	body := `{"prompt": {"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0`
	if o.value != "" {
		body += `, "odd": ` + o.value
	}
	body += `}}, "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`
	for key, raw := range map[string]string{"number": o.number, "extra_data": o.extra, "client_id": o.client, "prompt_id": o.id} {
		if raw != "" {
			body += `, "` + key + `": ` + raw
		}
	}
	return body + "}"
}

// oddPrompts make a real ComfyUI return listings that only Python reads, or that a
// web UI refuses as a whole.
var oddPrompts = []oddPrompt{
	{number: `NaN`},
	{number: `Infinity`},
	{number: `-Infinity`},
	{number: `1e400`},
	{number: `-1e400`},
	{number: `"nan"`},
	{number: `" -inf "`},
	{number: `1180591620717411303424`},
	{number: `-0.0`},
	{number: `true`},
	{value: `NaN`},
	{value: `[-Infinity, {"x": 1e999}]`},
	{value: `"\ud83d"`},
	{value: `"\ude00\ud83d"`},
	{extra: `{"x": NaN, "extra_pnginfo": {"workflow": {"id": NaN}}}`},
	{extra: `{"extra_pnginfo": {"workflow": {"id": 5}}}`},
	{extra: `{"extra_pnginfo": {"workflow": {"id": ["\udc00"]}}}`},
	{extra: `{"extra_pnginfo": {"workflow": 1e999}}`},
	{extra: `{"client_id": "\ud800", "comfyhub": {"priority": Infinity}}`},
	{extra: `{"\ud800": Infinity, "create_time": NaN}`},
	{client: `"\ud83d"`},
	{id: `"\ud83d"`},
	{id: `"\"\u0000/%2F"`},
	{id: `NaN`},
	{number: `NaN`, extra: `{"a": -Infinity}`, id: `"NaN"`},
}

// strictly reads every listing, and everything about one prompt, with a strict
// parser, and requires /api/jobs to be what web interfaces accept.
func (b *bench) strictly(t testing.TB, id string) {
	t.Helper()
	at := url.PathEscape(id)
	for _, path := range []string{
		"/prompt", "/queue", "/history", "/history/" + at, "/api/jobs", "/api/jobs?sort_by=execution_duration", "/api/jobs/" + at, "/hub/jobs", "/hub/jobs/" + at,
	} {
		status, body := b.get(path)
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, status, path)
		if status == http.StatusNotFound && body[0] != '{' {
			continue // no such route, for example because the id has a slash
		}
		decoded[any](t, body)
		require.Equal(t, string(body), string(pyjson.Strict(body)), path)
	}
	for id, e := range decoded[map[string]struct{ Prompt []any }](t, b.gets("/history")) {
		require.IsType(t, 0.0, e.Prompt[0], "%s: a number, not null", id)
	}
	_, body := b.get("/api/jobs")
	decoded[struct {
		Jobs []struct {
			Workflow *string `json:"workflow_id"`
			Priority float64
			Created  int64 `json:"create_time"`
		}
	}](t, body)
}

// oddly posts a prompt and reads the listings while it waits or runs and after its end.
func (b *bench) oddly(t testing.TB, o oddPrompt) {
	t.Helper()
	status, answer := b.post("/prompt", o.body())
	if status != http.StatusOK {
		return
	}
	accepted := decoded[struct {
		ID     string `json:"prompt_id"`
		Number float64
	}](t, answer)
	b.strictly(t, accepted.ID)
	eventually(t, func() bool {
		live, err := b.hub.Queue.Live(t.Context(), "")
		return err == nil && len(live) == 0
	}, time.Minute, time.Millisecond)
	b.strictly(t, accepted.ID)
}

// FuzzListings posts odd prompts and reads every listing with a strict parser.
func FuzzListings(f *testing.F) {
	for _, o := range oddPrompts {
		f.Add(o.number, o.extra, o.client, o.id, o.value)
	}
	b := newBench(f, 1)
	f.Fuzz(func(t *testing.T, number, extra, client, id, value string) {
		o := oddPrompt{number, extra, client, id, value}
		for _, raw := range []string{number, extra, client, id, value} {
			if raw != "" && !pythonReads(raw) {
				return
			}
		}
		b := &bench{t: t, web: b.web, hub: b.hub}
		b.oddly(t, o)
		require.NoError(t, b.hub.Queue.ClearHistory(t.Context(), "default", ""))
	})
}

// pythonReads reports whether Python reads a text as JSON.
func pythonReads(raw string) bool {
	_, err := pyjson.Parse([]byte(raw))
	return err == nil
}

// Whatever a prompt says beyond what ComfyUI knows is for custom nodes, whose handlers get the
// whole body. The instance gets it as it was sent, each member once.
func TestUnknownMembersReachTheInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var posted []string
		b := newBench(t, 0, func(b *bench) {
			front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
				if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
					body, _ := io.ReadAll(r.Body)
					mu.Lock()
					posted = append(posted, string(body))
					mu.Unlock()
					r.Body = io.NopCloser(bytes.NewReader(body))
				}
				rest.ServeHTTP(w, r)
			})
			b.settings.Instances = []string{front.URL}
		})
		last := func() string {
			mu.Lock()
			defer mu.Unlock()
			return posted[len(posted)-1]
		}
		const id = "11111111-1111-4111-8111-111111111111"
		post := func(more string) {
			t.Helper()
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": "ann", "front": true, "extra_data": {"x": 1}%s}`, picture(1), id, more))
			b.finished(id)
		}
		post("")
		require.NotContains(t, last(), "workflow_metadata")
		first := must(b.hub.Jobs.Find(t.Context(), job.DefaultTenant, id))(t)
		post(`, "workflow_metadata": {"workflow_id": "w", "n":  1e2}, "of a node": [NaN], "number": 5`)
		require.Contains(t, last(), `"workflow_metadata": {"workflow_id": "w", "n":  1e2}`)
		require.Contains(t, last(), `"of a node": [NaN]`)
		for _, once := range []string{`"prompt":`, `"prompt_id":`, `"extra_data":`, `"workflow_metadata":`} {
			require.Equal(t, 1, strings.Count(last(), once), once)
		}
		for _, never := range []string{`"front":`, `"number":`} {
			require.NotContains(t, last(), never)
		}
		second := must(b.hub.Jobs.Find(t.Context(), job.DefaultTenant, id))(t)
		require.NotEqual(t, first.Key, second.Key, "it is another prompt of the same id")
		post(`, "workflow_metadata": {"workflow_id": "w", "n":  1e2}, "of a node": [NaN], "number": 5`)
		require.Equal(t, second.Key, must(b.hub.Jobs.Find(t.Context(), job.DefaultTenant, id))(t).Key, "sent twice it is one")
	})
}
