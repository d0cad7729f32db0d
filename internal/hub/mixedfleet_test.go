package hub

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// mixed is a fleet of one ComfyUI and one A1111 server, with tenants that use both.
type mixed struct {
	*bench
	server *a1111Server
	// open are the requests that wait for A1111's answers. They end with the test.
	open sync.WaitGroup
}

func newMixed(t *testing.T, limits config.TenantLimits) *mixed {
	t.Helper()
	m := &mixed{server: newA1111(t, simsd.Config{StepTime: time.Millisecond})}
	m.bench = newBench(t, 1, func(b *bench) {
		b.settings.A1111, b.settings.TenantLimits = []string{m.server.url}, limits
	})
	m.readyA1111(1)
	t.Cleanup(m.open.Wait)
	return m
}

// post makes a request of a tenant, with a priority or "".
func (m *mixed) post(tenant, path, priority, body string) (status int, answer string) {
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.web.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.SetBasicAuth(tenant, "")
	r.Header.Set("X-ComfyHub-Priority", priority)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(data)
}

// comfy posts a job for ComfyUI.
func (m *mixed) comfy(tenant, name, priority, graph string) (int, string) {
	return m.post(tenant, "/prompt", priority, fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, name))
}

// sd posts a job for A1111 and waits until the hub has it. Its request stays open.
func (m *mixed) sd(tenant, name, priority string, steps int) {
	m.t.Helper()
	before := m.known(tenant)
	m.open.Go(func() {
		_, _ = m.post(tenant, "/sdapi/v1/txt2img", priority, fmt.Sprintf(`{"steps": %d, "width": 8, "height": 8, "force_task_id": %q}`, steps, name))
	})
	eventually(m.t, func() bool { return m.known(tenant) == before+1 }, time.Minute, time.Millisecond)
}

// known returns how many jobs a tenant has, including ended ones: a short one may be over before
// anybody looks. One that ends between the two looks counts once.
func (m *mixed) known(tenant string) int {
	jobs := must(m.hub.Jobs().Live(m.t.Context(), tenant))(m.t)
	ended := must(m.hub.Jobs().Ended(m.t.Context(), tenant))(m.t)
	ids := map[string]bool{}
	for _, j := range jobs {
		ids[j.ID] = true
	}
	for _, e := range ended {
		ids[e.Job.ID] = true
	}
	return len(ids)
}

// live returns how many jobs of a tenant are waiting or running.
func (m *mixed) live(tenant string) int {
	jobs := must(m.hub.Jobs().Live(m.t.Context(), tenant))(m.t)
	return len(jobs)
}

// run is a job that has ended. Its name ends with that of its task, or is its own.
type run struct {
	tenant, name string
	started      int64
}

// order are the jobs of tenants in the order in which they began, once all have ended.
func (m *mixed) order(tenants ...string) []run {
	m.t.Helper()
	var all []run
	for _, tenant := range tenants {
		eventually(m.t, func() bool { return m.live(tenant) == 0 }, time.Minute, 5*time.Millisecond)
		ended := must(m.hub.Jobs().Ended(m.t.Context(), tenant))(m.t)
		for _, e := range ended {
			require.NotZero(m.t, e.Job.StartedAt, e.Job.ID)
			name := e.Job.ID
			if rest, ok := strings.CutPrefix(name, "sdapi-"); ok {
				name = rest[len("00000000-0000-0000-0000-000000000000-"):]
			}
			all = append(all, run{tenant, name, e.Job.StartedAt})
		}
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.started, b.started) })
	return all
}

// A tenant's jobs for ComfyUI and for A1111 form one line: the highest priority is next, whichever
// server it is for.
func TestMixedFleetHasOneOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newMixed(t, config.TenantLimits{Running: 1})
		require.NoError(t, m.hub.Operator().Pause(t.Context(), queue.StopAll))
		// A server is idle a moment after its run has ended, and would be passed over until then:
		// the next in the row is always for the other one.
		for n, name := range []string{"comfy 0", "sd 1", "sd 5", "comfy 2", "comfy 4", "sd 3"} {
			kind, priority, _ := strings.Cut(name, " ")
			if kind == "sd" {
				m.sd("ann", name, priority, 100)
				continue
			}
			answered(m.comfy("ann", name, priority, work(10, n, "none")))(t, http.StatusOK) // a fifth of a second
		}
		require.NoError(t, m.hub.Operator().Resume(t.Context(), queue.StopAll))
		var names []string
		for _, r := range m.order("ann") {
			names = append(names, r.name)
		}
		require.Equal(t, []string{"sd 5", "comfy 4", "sd 3", "comfy 2", "sd 1", "comfy 0"}, names)
	})
}

// full requires that a tenant's waiting jobs of both kinds are as many as may be.
func (m *mixed) full(tenant string) {
	m.t.Helper()
	for path, body := range map[string]string{"/prompt": `{"prompt": ` + picture(9) + `}`, "/sdapi/v1/txt2img": `{"steps": 1}`} {
		status, answer := m.post(tenant, path, "", body)
		require.Equal(m.t, http.StatusTooManyRequests, status, path)
		require.Contains(m.t, answer, "tenant_limits waiting", path)
	}
}

// The limits of a tenant count its jobs for both kinds of servers, and hold up nobody else.
func TestMixedFleetLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// first runs until stop, waits is what a tenant posts for the idle server.
		first, waits func(m *mixed, tenant, name string)
		stop         func(m *mixed)
	}{
		"a run at the ComfyUI": {(*mixed).longComfy, (*mixed).shortSD, func(m *mixed) { m.post("ann", "/interrupt", "", "") }},
		"a run at A1111":       {(*mixed).longSD, (*mixed).shortComfy, func(m *mixed) { m.post("ann", "/sdapi/v1/interrupt", "", "") }},
	} {
		runInBubble(t, name, func(t *testing.T) {
			m := newMixed(t, config.TenantLimits{Running: 1, Waiting: 2})
			c.first(m, "ann", "first")
			c.waits(m, "ann", "second")
			c.waits(m, "ann", "third")
			m.full("ann")
			c.waits(m, "bob", "bob's")
			require.Len(t, m.order("bob"), 1, "the other server is idle all the while")
			m.full("ann")
			c.stop(m)
			require.Len(t, m.order("ann"), 3)
		})
	}
}

func (m *mixed) shortSD(tenant, name string) { m.sd(tenant, name, "", 3) }

func (m *mixed) longSD(tenant, name string) {
	m.sd(tenant, name, "", 1_000_000)
	m.running(1, m.server)
}

func (m *mixed) shortComfy(tenant, name string) {
	m.t.Helper()
	status, answer := m.comfy(tenant, name, "", picture(len(name)))
	require.Equal(m.t, http.StatusOK, status, answer)
}

func (m *mixed) longComfy(tenant, name string) {
	m.t.Helper()
	status, answer := m.comfy(tenant, name, "", endless(1))
	require.Equal(m.t, http.StatusOK, status, answer)
	eventually(m.t, func() bool { return started(m.bench) == 1 }, time.Minute, time.Millisecond)
}

// flood has tenants post so many jobs of each kind, in this order, and returns the order in
// which they began.
func (m *mixed) flood(all ...flood) []run {
	m.t.Helper()
	require.NoError(m.t, m.hub.Operator().Pause(m.t.Context(), queue.StopAll))
	var tenants []string
	for _, f := range all {
		tenants = append(tenants, f.tenant)
		for n := range f.comfy {
			status, answer := m.comfy(f.tenant, fmt.Sprint("comfy ", n), "", work(10, n, "none")) // a fifth of a second
			require.Equal(m.t, http.StatusOK, status, answer)
		}
		for n := range f.sd {
			m.sd(f.tenant, fmt.Sprint("sd ", n), "", 100)
		}
	}
	require.NoError(m.t, m.hub.Operator().Resume(m.t.Context(), queue.StopAll))
	return m.order(tenants...)
}

type flood struct {
	tenant    string
	comfy, sd int
}

// before counts the jobs of a tenant and a kind that began before the last one of another.
func before(all []run, tenant, kind, other string) (count int) {
	last := 0
	for n, r := range all {
		if r.tenant == other {
			last = n
		}
	}
	for _, r := range all[:last] {
		if r.tenant == tenant && strings.HasPrefix(r.name, kind) {
			count++
		}
	}
	return count
}

// A share is of the whole fleet: a tenant that has had the ComfyUI to itself all the while gets few
// turns on the A1111 server.
func TestMixedFleetHasOneShare(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		all := newMixed(t, config.TenantLimits{}).flood(flood{"ann", 20, 10}, flood{"bob", 0, 8})
		require.Len(t, all, 38)
		require.Less(t, before(all, "ann", "sd", "bob"), 5, "with a share of each kind they would take turns: %v", all)
	})
}
