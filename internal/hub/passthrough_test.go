package hub_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
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
			must(b.hub.Operator().RevokeKey(b.t.Context(), "ada"))(b.t)
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
