package hub

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
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/submit"
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

// open opens a tenant's socket, or returns the answer that refuses it.
func (b *bench) open(tenant, client string) (status int, answer string) {
	b.t.Helper()
	return b.openAt(tenant, "/ws?clientId="+client)
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
		require.False(t, b.hub.logins.Lately())
		b.as("ann", "GET", "/queue", "")
		require.True(t, b.hub.logins.Lately())
		require.NoError(t, b.hub.logins.Share(t.Context(), b.hub.db))
		b.stop()
		b.start()
		eventually(t, b.hub.logins.Lately, time.Minute, 5*time.Millisecond)
	})
}

func TestTenantSockets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{Sockets: 2})
		for _, client := range []string{"1", "2"} {
			require.Equal(t, http.StatusSwitchingProtocols, statusOf(b.open("ann", client)))
		}
		status, answer := b.open("ann", "3")
		require.Equal(t, http.StatusTooManyRequests, status)
		b.refused("sockets", status, answer)
		require.Equal(t, http.StatusSwitchingProtocols, statusOf(b.open("bob", "1")))
	})
}

// A socket to a custom node is one of its owner's, in number and in memory.
func TestTenantSocketsOfNodes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limits config.Settings
		status int
	}{
		"number": {config.Settings{TenantLimits: config.TenantLimits{Sockets: 2}}, http.StatusTooManyRequests},
		// An eighth is for what arrives, and a quarter of that for one tenant.
		"memory": {config.Settings{BodyMemory: 32 * 300 << 10}, http.StatusServiceUnavailable},
	} {
		runInBubble(t, name, func(t *testing.T) {
			p := newPack(t, "one", sim.Config{})
			b := shared(t, tt.limits.TenantLimits, func(b *bench) {
				b.settings.BodyMemory, b.settings.Passthrough = tt.limits.BodyMemory, config.PassthroughOn
				b.settings.Instances = append(b.settings.Instances, p.URL)
			})
			for range 2 {
				status, answer := b.openAt("ann", "/pack/ws")
				require.Equal(t, http.StatusSwitchingProtocols, status, answer)
			}
			status, answer := b.openAt("ann", "/pack/ws")
			require.Equal(t, tt.status, status, answer)
			answered(b.openAt("bob", "/pack/ws"))(t, http.StatusSwitchingProtocols)
		})
	}
}

func TestTenantQueue(t *testing.T) {
	t.Parallel()
	for limit, limits := range map[string]config.TenantLimits{
		"waiting":    {Waiting: 2},
		"queue_size": {QueueSize: 1000}, // one of these is larger
	} {
		runInBubble(t, limit, func(t *testing.T) {
			b := shared(t, limits, serving(sim.Config{}))
			post := func(tenant string, n int) (int, string) {
				return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s, "extra_data": {"note": %q}}`, picture(n), noise(4000)))
			}
			// This job takes the only instance.
			b.acts("ann", "POST", "/prompt", `{"prompt": `+endless(1)+`, "prompt_id": "first"}`)
			eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
			status, answer := http.StatusOK, ""
			for n := 0; status == http.StatusOK && n < 5; n++ {
				status, answer = post("ann", n)
			}
			require.Equal(t, http.StatusTooManyRequests, status)
			b.refused(limit, status, answer)
			answered(post("bob", 9))(t, http.StatusOK)
			b.as("ann", "POST", "/interrupt", `{"prompt_id": "first"}`)
		})
	}
}

// A tenant has no more runs at once than allowed; its other jobs wait and say so, and hold up
// nobody.
func TestTenantRunning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{Running: 1}, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{}), newInstance(t, sim.Config{}))
			b.settings.TenantLimitsOf = map[string]config.TenantLimits{"cyd": {Running: 2}}
		})
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
		require.Zero(t, b.hub.dispatch.Watchdog.Stuck())
		require.Equal(t, 2, started(b))
		stop("ann", "a1")
		eventually(t, func() bool { return started(b) == 3 }, time.Minute, 5*time.Millisecond, "the seat is free")
		stop("ann", "a2")

		post("cyd", "c1", endless(4))
		post("cyd", "c2", endless(5))
		eventually(t, func() bool { return started(b) == 5 }, time.Minute, 5*time.Millisecond, "its own limit")
		stop("cyd", "c1")
		stop("cyd", "c2")
	})
}

// A tenant that has used up its time for a day is refused, and told when it may go on.
func TestTenantGPUTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{GPUTime: time.Millisecond}, serving(sim.Config{}))
		post := func(tenant string, n int) (int, string) {
			return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": %s}`, picture(n)))
		}
		status, answer := post("ann", 1)
		require.Equal(t, http.StatusOK, status, answer)
		eventually(t, func() bool {
			status, answer = post("ann", 2)
			return status != http.StatusOK
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, http.StatusTooManyRequests, status)
		b.refused("gpu_seconds", status, answer)
		require.Regexp(t, `You can go on in 2(4h|5h0m)`, answer, "hours are counted as a whole")
		answered(post("bob", 9))(t, http.StatusOK)
	})
}

func TestTenantUserdata(t *testing.T) {
	t.Parallel()
	store := func(b *bench, tenant, name string, size int) (int, string) {
		return b.as(tenant, "POST", "/userdata/"+name, strings.Repeat("x", size))
	}
	runInBubble(t, "userdata", func(t *testing.T) {
		b := shared(t, config.TenantLimits{Userdata: 1000})
		for _, name := range []string{"1", "2"} {
			status, answer := store(b, "ann", name, 450)
			require.Equal(t, http.StatusOK, status, answer)
		}
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
		status, answer := store(b, "ann", "a%2Fb%2Fc", 1) // two folders and a file
		require.Equal(t, http.StatusOK, status, answer)
		for _, name := range []string{"d", "a%2Fe%2Ff"} {
			answer = answered(store(b, "ann", name, 1))(t, http.StatusInsufficientStorage)
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

// A prompt may ask for a lower band than its tenant's, but not for a higher one.
func TestBandOfAPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			b.settings.TenantLimits = config.TenantLimits{Band: job.Normal}
			b.settings.TenantLimitsOf = map[string]config.TenantLimits{"ada": {Band: job.Interactive}, "batch": {Band: job.Bulk}}
		})
		for _, c := range []struct {
			tenant     string
			asks, gets job.Band
		}{
			{"ada", "", job.Interactive},
			{"ada", job.Interactive, job.Interactive},
			{"ada", job.Normal, job.Normal},
			{"ada", job.Bulk, job.Bulk},
			{"bob", "", job.Normal},
			{"bob", job.Interactive, job.Normal},
			{"bob", job.Bulk, job.Bulk},
			{"batch", "", job.Bulk},
			{"batch", job.Interactive, job.Bulk},
			{"batch", job.Normal, job.Bulk},
		} {
			got := b.hub.submitter.BandOf(submit.Submission{Requester: job.Requester{Tenant: c.tenant}, Band: c.asks})
			require.Equal(t, c.gets, got, "%s asks for %q", c.tenant, c.asks)
		}
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
