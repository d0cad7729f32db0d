package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// shared is a hub whose visitors log in with a header, so that several tenants can
// send requests at once.
func shared(t *testing.T, limits config.TenantLimits, change ...func(*bench)) *bench {
	t.Helper()
	b := newBench(t, 0, append([]func(*bench){func(b *bench) { b.settings.TenantLimits = limits }}, change...)...)
	b.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.rooms.Serve(w, r, api.Visitor{IP: "127.0.0.1", Tenant: r.Header.Get("Test-Login")})
	})
	return b
}

// as sends a request as a tenant.
func (b *bench) as(tenant, method, path, body string) (status int, answer string) {
	b.t.Helper()
	status, _, answer = b.ask(method, path, body, http.Header{"Test-Login": {tenant}})
	return status, answer
}

// acts is as for requests that must succeed.
func (b *bench) acts(tenant, method, path, body string) string {
	b.t.Helper()
	return answered(b.as(tenant, method, path, body))(b.t, http.StatusOK, method, path)
}

// refused requires that a tenant was told which of its limits it reached.
func (b *bench) refused(limit string, status int, answer string) {
	b.t.Helper()
	require.GreaterOrEqual(b.t, status, 400, answer)
	require.Contains(b.t, answer, "tenant_limits "+limit)
	require.Contains(b.t, answer, "other users are not affected")
	require.Contains(b.t, answer, `"node_errors": {}`, "the shape of a refused prompt")
	require.Positive(b.t, b.metric(`comfyhub_tenant_limit_refusals_total{limit="`+limit+`"}`), "the refusal is counted")
}

// openAt opens a tenant's socket at any path and leaves it open.
func (b *bench) openAt(tenant, path string) (status int, answer string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, b.web.URL+path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Test-Login": {tenant}},
	})
	if err != nil {
		require.NotNil(b.t, resp, "%v", err)
		body := make([]byte, 4096)
		n, _ := resp.Body.Read(body)
		return resp.StatusCode, string(body[:n])
	}
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	return resp.StatusCode, ""
}

// A restarted hub still knows that people log in.
func TestLoginsOutliveTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{})
		require.False(t, b.hub.Logins().Lately())
		b.as("ann", "GET", "/queue", "")
		require.True(t, b.hub.Logins().Lately())
		require.NoError(t, b.hub.Logins().Share(t.Context(), b.hub.DB))
		b.stop()
		b.start()
		eventually(t, b.hub.Logins().Lately, time.Minute, 5*time.Millisecond)
	})
}

// A socket to a custom node is one of its owner's, in number and in memory.
func TestTenantSockets(t *testing.T) {
	t.Parallel()
	for limit, tt := range map[string]struct {
		limits config.Settings
		paths  []string
		status int
	}{
		"sockets": {config.Settings{TenantLimits: config.TenantLimits{Sockets: 2}}, []string{"/pack/ws", "/ws?clientId=1"}, http.StatusTooManyRequests},
		// An eighth is for what arrives, and a quarter of that for one tenant.
		"memory": {config.Settings{BodyMemory: 32 * 300 << 10}, []string{"/pack/ws", "/pack/ws"}, http.StatusServiceUnavailable},
	} {
		runInBubble(t, limit, func(t *testing.T) {
			p := newPack(t, "one", sim.Config{})
			b := shared(t, tt.limits.TenantLimits, func(b *bench) {
				b.settings.BodyMemory, b.settings.Passthrough = tt.limits.BodyMemory, config.PassthroughOn
				b.settings.Instances = append(b.settings.Instances, p.URL)
			})
			for _, path := range tt.paths {
				answered(b.openAt("ann", path))(t, http.StatusSwitchingProtocols)
			}
			for _, path := range tt.paths {
				answer := answered(b.openAt("ann", path))(t, tt.status)
				if limit == "sockets" {
					b.refused(limit, tt.status, answer)
				}
				answered(b.openAt("bob", path))(t, http.StatusSwitchingProtocols)
			}
		})
	}
}

// A tenant that has reached one of its limits is told which, and others are not.
func TestTenantLimits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, serving(sim.Config{}), func(b *bench) {
			b.settings.TenantLimitsOf = map[string]config.TenantLimits{
				"waiting": {Waiting: 2}, "queue_size": {QueueSize: 1000}, "gpu_seconds": {GPUTime: time.Millisecond}, "storage": {Storage: 10_000}, "rate": {Rate: 2},
			}
		})
		n := 0
		post := func(tenant string) (int, string) {
			n++
			return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"note": %q}}`, picture(n), noise(4000)))
		}
		reaches := func(limit string) (status int, answer string) {
			t.Helper()
			eventually(t, func() bool {
				status, answer = post(limit)
				return status != http.StatusOK
			}, time.Minute, 5*time.Millisecond)
			require.Equal(t, http.StatusTooManyRequests, status)
			b.refused(limit, status, answer)
			answered(post("bob"))(t, http.StatusOK)
			return status, answer
		}
		_, answer := reaches("gpu_seconds")
		require.Regexp(t, `You can go on in 2(4h|5h0m)`, answer, "hours are counted as a whole")

		answered(post("storage"))(t, http.StatusOK)
		eventually(t, func() bool {
			taken, err := b.hub.Store.Taken(t.Context(), "storage")
			return err == nil && taken > 0
		}, time.Minute, 5*time.Millisecond, "the picture counts")
		must(b.hub.DB.Client().ZIncrBy(t.Context(), b.hub.DB.Key("files", "shares"), 10_000, "storage").Result())(t)
		reaches("storage")

		_, answer = reaches("rate")
		require.Equal(t, "tenant_rate", kindOfError(t, answer))
		require.Regexp(t, `You can go on in (30|[12]?\d)s\.`, answer)
		<-time.After(30 * time.Second) // as it was told, whatever was refused meanwhile
		answered(post("rate"))(t, http.StatusOK)

		began := started(b)
		b.acts("ann", "POST", "/prompt", `{"prompt": `+endless(1)+`, "prompt_id": "first"}`) // it takes the only instance
		eventually(t, func() bool { return started(b) > began }, time.Minute, 5*time.Millisecond)
		reaches("waiting")
		reaches("queue_size")
		b.as("ann", "POST", "/interrupt", `{"prompt_id": "first"}`)
	})
}

// A tenant has no more runs at once than allowed; its other jobs wait and say so, and hold up
// nobody.
func TestTenantRunning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{Running: 1}, serving(sim.Config{}, sim.Config{}))
		post := func(tenant, id string, graph string) {
			t.Helper()
			b.acts(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, id))
		}
		ended := func(tenant, id string) func() bool {
			return func() bool {
				_, answer := b.as(tenant, "GET", "/history/"+id, "")
				return strings.Contains(answer, "outputs")
			}
		}
		stop := func(tenant, id string) {
			b.as(tenant, "POST", "/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
		}
		post("ann", "a1", endless(1))
		post("ann", "a2", endless(2))
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
		post("bob", "b1", picture(3))
		eventually(t, ended("bob", "b1"), time.Minute, 5*time.Millisecond)
		_, answer := b.as("ann", "POST", "/hub/explain", `{"prompt_id": "a2"}`)
		require.Contains(t, answer, "no more than 1 of them run at once")
		require.Zero(t, b.hub.Dispatch.Watchdog.Stuck())
		require.Equal(t, 2, started(b))
		stop("ann", "a1")
		eventually(t, func() bool { return started(b) == 3 }, time.Minute, 5*time.Millisecond, "the seat is free")
		stop("ann", "a2")
	})
}

func TestTenantUserdata(t *testing.T) {
	t.Parallel()
	store := func(b *bench, tenant, name string, size int) (int, string) {
		return b.as(tenant, "POST", "/userdata/"+name, strings.Repeat("x", size))
	}
	runInBubble(t, "userdata", func(t *testing.T) {
		b := shared(t, config.TenantLimits{Userdata: 1000})
		answered(store(b, "ann", "1", 450))(t, http.StatusOK)
		answered(store(b, "ann", "2", 450))(t, http.StatusOK)
		status, answer := store(b, "ann", "3", 450)
		require.Equal(t, http.StatusInsufficientStorage, status)
		b.refused("userdata", status, answer)
		require.Equal(t, http.StatusNotFound, statusOf(b.as("ann", "GET", "/userdata/3", "")), "nothing of it is kept")
		status, answer = b.as("ann", "POST", "/settings", `{"Comfy.Test": "`+strings.Repeat("x", 200)+`"}`)
		b.refused("userdata", status, answer)
		answered(store(b, "bob", "3", 450))(t, http.StatusOK)

		answered(store(b, "ann", "2", 500))(t, http.StatusOK, "a file that is replaced gives its room back")
		b.acts("ann", "POST", "/userdata/2/move/2b", "") // one that is moved needs none
		require.Equal(t, http.StatusNoContent, statusOf(b.as("ann", "DELETE", "/userdata/1", "")))
		answered(store(b, "ann", "3", 450))(t, http.StatusOK)
		b.stop()
		b.start()
		status, answer = store(b, "ann", "4", 450)
		b.refused("userdata", status, answer)
	})
	runInBubble(t, "userdata_files", func(t *testing.T) {
		b := shared(t, config.TenantLimits{UserdataFiles: 3})
		answered(store(b, "ann", "a%2Fb%2Fc", 1))(t, http.StatusOK) // two folders and a file
		for _, name := range []string{"d", "a%2Fe%2Ff"} {
			answer := answered(store(b, "ann", name, 1))(t, http.StatusInsufficientStorage)
			b.refused("userdata_files", http.StatusInsufficientStorage, answer)
		}
		answered(store(b, "bob", "d", 1))(t, http.StatusOK)
		require.Equal(t, http.StatusNoContent, statusOf(b.as("ann", "DELETE", "/userdata/a%2Fb%2Fc", "")))
		answered(store(b, "ann", "a%2Fd", 1))(t, http.StatusOK)
	})
	runInBubble(t, "users share", func(t *testing.T) {
		b := shared(t, config.TenantLimits{UserdataFiles: 5}, func(b *bench) { b.settings.MultiUser = true })
		stored := 0
		for n := range 6 {
			id := b.acts("ann", "POST", "/users", fmt.Sprintf(`{"username": "user %d"}`, n))
			if status, _, _ := b.ask("POST", "/userdata/x", "x", http.Header{"Test-Login": {"ann"}, "Comfy-User": {strings.Trim(id, `"`)}}); status == http.StatusOK {
				stored++
			}
		}
		require.Equal(t, 4, stored, "the list of users is a file too")
		require.Equal(t, http.StatusInternalServerError, statusOf(b.as("ann", "POST", "/users", `{"username": "`+strings.Repeat("é", 200)+`"}`)), "a name has a bound")
	})
}

// The band that a prompt asks for comes by header or in its extra_data, and is shown.
func TestBandOverHTTP(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for name, c := range map[string]struct{ header, extra, want string }{
			"header":                 {header: "bulk", want: "bulk"},
			"extra data":             {extra: `{"comfyhub": {"band": "bulk"}}`, want: "bulk"},
			"header over extra data": {header: "normal", extra: `{"comfyhub": {"band": "bulk"}}`},
			"none":                   {want: ""},
			"odd":                    {header: "first", extra: `{"comfyhub": {"band": 7}}`},
			"above":                  {header: "interactive"},
		} {
			extra := ""
			if c.extra != "" {
				extra = `, "extra_data": ` + c.extra
			}
			_, _, answer := b.ask(http.MethodPost, "/prompt", `{"prompt": `+picture(3)+extra+`}`, http.Header{"X-Comfyhub-Band": {c.header}})
			shown := decoded[struct{ Band string }](t, b.gets("/hub/jobs/"+idOf(t, answer)))
			require.Equal(t, c.want, shown.Band, name)
		}
	})
}
