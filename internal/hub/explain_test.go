package hub_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/view"
)

type explained struct {
	State    string
	Position *int
	ETA      *float64
	Attempts int
	Reason   string
	Ahead    struct {
		Own    []string
		Others int `json:"others_count"`
	}
	Instances []struct {
		Name, State, Why string
		CanRun           bool     `json:"can_run"`
		FreeIn           *float64 `json:"free_in"`
		Lacks            []string
	}
}

func (b *bench) explain(id string) (e explained) {
	b.t.Helper()
	body := b.posts("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, id))
	require.NoError(b.t, json.Unmarshal(body, &e), string(body))
	return e
}

func TestExplain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			// The second instance lacks the class that the jobs need.
			b.instances = append(b.instances, newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}))
		})
		long := b.submit(endless(1), "ann")
		eventually(t, func() bool { return b.explain(long).State == "running" }, time.Minute, 10*time.Millisecond)
		require.Contains(t, b.explain(long).Reason, "it is being run by memory")
		require.Contains(t, b.explain(long).Reason, ": idle and able")
		answer := b.gets("/hub/jobs/" + long)
		require.Contains(t, string(answer), `"why": "idle and able"`)
		require.Empty(t, b.explain(long).Instances)

		// What an instance does comes with its next report.
		eventually(t, func() bool {
			return slices.ContainsFunc(b.hub.Fleet.Instances(), func(i fleet.Instance) bool { return i.State == fleet.Busy })
		}, time.Minute, 10*time.Millisecond)
		first, second := b.submit(work(1, 2, "none"), "ann"), b.submit(work(1, 3, "none"), "bob")
		e := b.explain(second)
		require.Equal(t, "queued", e.State)
		require.Zero(t, *e.Position, "ann's first one runs, so it is bob's turn")
		require.Equal(t, 1, *b.explain(first).Position)
		require.Equal(t, "waiting for an instance to become idle", e.Reason)
		require.Empty(t, e.Ahead.Own)
		require.Zero(t, e.Ahead.Others)
		require.Equal(t, []string{second}, b.explain(first).Ahead.Own)
		require.Len(t, e.Instances, 2)
		for _, i := range e.Instances {
			if i.CanRun {
				require.Equal(t, "it runs another job", i.Why)
				require.Equal(t, "busy", i.State)
				require.Nil(t, i.FreeIn, "nobody knows yet how long it runs")
				continue
			}
			require.Equal(t, "it lacks node class SimulatedWork", i.Why)
			require.Equal(t, []string{"node class SimulatedWork"}, i.Lacks)
			require.Equal(t, "idle", i.State)
			require.Zero(t, *i.FreeIn)
		}

		// The only instance that could run them leaves.
		b.instances[0].die()
		eventually(t, func() bool {
			for _, i := range b.explain(first).Instances {
				if i.CanRun {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond)
		require.Contains(t, b.explain(first).Reason, "no present instance can run it")

		for ask, want := range map[string]int{
			`{"prompt_id": "nobody's"}`: http.StatusNotFound, `{}`: http.StatusBadRequest, `nonsense`: http.StatusBadRequest,
		} {
			require.Equal(t, want, statusOf(b.post("/hub/explain", ask)), ask)
		}
		b.tenant = "another tenant"
		require.Equal(t, http.StatusNotFound, statusOf(b.post("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, first))))
	})
}

// postFor posts a prompt and returns its id and the header X-ComfyHub-Eta.
func (b *bench) postFor(graph, client string) (id, eta string) {
	b.t.Helper()
	_, header, body := b.ask(http.MethodPost, "/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": %q}`, graph, client), nil)
	return idOf(b.t, body), header.Get("X-ComfyHub-Eta")
}

// etaOf is the eta of a job in /hub/jobs/ID, in the list, and in its explanation.
func (b *bench) etaOf(id string) (of [3]*float64) {
	b.t.Helper()
	type view struct {
		ID  string   `json:"id"`
		ETA *float64 `json:"eta"`
	}
	of[0] = decoded[view](b.t, b.gets("/hub/jobs/"+id)).ETA
	for _, v := range decoded[[]view](b.t, b.gets("/hub/jobs")) {
		if v.ID == id {
			of[1] = v.ETA
		}
	}
	of[2] = decoded[view](b.t, b.posts("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, id))).ETA
	return of
}

// A graph has an ETA once one of its structure has run, and only then.
func TestETA(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	for n := range 3 {
		id, eta := b.postFor(work(0.3, n, "none"), "ann")
		if n == 0 {
			require.Empty(t, eta, "nothing is known yet")
		}
		b.finished(id)
	}
	running, _ := b.postFor(endless(9), "ann")
	eventually(t, func() bool { return b.explain(running).State == "running" }, time.Minute, 10*time.Millisecond)
	for _, eta := range b.etaOf(running) {
		require.NotNil(t, eta, "of the same structure, but longer")
		require.Greater(t, *eta, 10.0, "its seconds count")
	}
	ahead, _ := b.postFor(work(0.3, 10, "none"), "ann")
	var waiting string
	nonce := 11
	eventually(t, func() bool { // the look ahead may be a moment old
		var header string
		waiting, header = b.postFor(work(0.3, nonce, "none"), "ann")
		nonce++
		eta, err := strconv.ParseFloat(header, 64)
		return err == nil && eta > 10
	}, time.Minute, 100*time.Millisecond)
	eventually(t, func() bool {
		of, first := b.etaOf(waiting), b.etaOf(ahead)[0]
		return of[0] != nil && of[1] != nil && of[2] != nil && *of[0] > 10 && first != nil && *first < *of[0]
	}, time.Minute, 10*time.Millisecond)

	unknown, header := b.postFor(picture(1), "ann")
	require.Empty(t, header, "no prompt of this structure has run")
	require.Equal(t, [3]*float64{}, b.etaOf(unknown))
	_, _ = b.post("/hub/jobs/"+running+"/cancel", "")
	b.finished(waiting)
	require.Nil(t, b.etaOf(waiting)[0], "it has ended")

	// What was learned outlives the hub.
	b.stop()
	b.start()
	b.connected(1)
	eventually(t, func() bool {
		id, header := b.postFor(work(0.3, int(time.Now().UnixNano()%1e6), "none"), "ann")
		b.finished(id)
		return header != ""
	}, time.Minute, 10*time.Millisecond)
}

// listedJob is what a test reads of an entry of /hub/jobs.
type listedJob struct {
	ID       string
	Status   string
	Position *int
	Tenant   string
}

// Pages of a tenant's jobs put together are its whole listing, and show nobody else's. The
// operator's pages show everybody's.
func TestJobsPages(t *testing.T) {
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1})), func(t *testing.T, b *bench) {
		post := func(id, graph string) {
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, id))
		}
		b.tenant = "ann"
		for n := range 3 {
			id := fmt.Sprint("ended-", n)
			post(id, picture(n))
			b.finished(id)
		}
		post("running", endless(1))
		eventually(t, func() bool { return started(b) == 4 }, time.Minute, 5*time.Millisecond)
		for n := range 4 {
			post(fmt.Sprint("waiting-", n), endless(n+2))
		}
		b.tenant = "bob"
		post("bobs", endless(9))
		get := func(query string) (jobs []listedJob) {
			t.Helper()
			answer := b.gets("/hub/jobs" + query)
			require.NoError(t, json.Unmarshal(answer, &jobs))
			return jobs
		}
		require.Len(t, get("?limit=1000"), 1)
		b.tenant = "ann"
		all := get("")
		require.Len(t, all, 8)
		require.Equal(t, all[:1], get("?status=running"))
		require.Equal(t, all[1:5], get("?status=queued"))
		require.Equal(t, all[5:], get("?status=ended"))
		require.Equal(t, all[6:7], get("?status=ended&limit=1&offset=1"))
		require.Equal(t, all, append(get("?limit=4"), get("?limit=4&offset=4")...))
		require.Empty(t, get("?offset=1000"))
		views := must(b.hub.Operator.Jobs(t.Context(), view.JobsPage{Limit: 1000}))(t)
		require.Len(t, views, 6, "both tenants' jobs that run and wait")
		stats := must(b.hub.Operator.Stats(t.Context()))(t)
		require.Equal(t, []any{5, 1, int64(3)}, []any{stats.Waiting, stats.Running, stats.Ended})
		for _, who := range []string{"bob", "ann"} {
			cancelled := must(b.hub.Canceller.Cancel(t.Context(), who, "bobs"))(t)
			require.Equal(t, who == "bob", cancelled)
		}
		cancelled := must(b.hub.Canceller.Cancel(t.Context(), "ann", "running"))(t)
		require.True(t, cancelled)
	})
}

// blocked is a network that reaches nobody.
type blocked struct{}

func (blocked) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 443}, Err: syscall.ECONNREFUSED}
}

// Why an endpoint fails is for operators: it may have its address, or whatever the endpoint says.
func TestExplainTellsNoAddressOfAnEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, serving(sim.Config{TimeScale: 1}), func(b *bench) {
			b.settings.Operators = []string{"root"}
			b.settings.Overflow = []config.Overflow{{Name: "gpus", URL: "https://gpus.internal", Egress: egress.Options{Transport: blocked{}}, Max: 1}}
		})
		b.connected(1)
		post := func(graph string) string {
			return idOf(t, []byte(b.acts("ann", "POST", "/prompt", `{"prompt": `+graph+`, "client_id": "ann"}`)))
		}
		post(work(3600, 1, "none"))
		body := `{"prompt_id": "` + post(work(1, 2, "none")) + `"}`
		<-time.After(time.Minute)
		told := b.acts("ann", "POST", "/hub/explain", body)
		require.Contains(t, told, "it takes no jobs now")
		require.NotContains(t, told, "10.1.2.3")
		require.Contains(t, b.acts("root", "POST", "/hub/explain", body), "10.1.2.3")
	})
}
