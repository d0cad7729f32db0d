package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
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
	status, body := b.post("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, id))
	require.Equal(b.t, http.StatusOK, status, string(body))
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
		status, answer := b.get("/hub/jobs/" + long)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(answer), `"why": "idle and able"`)
		require.Empty(t, b.explain(long).Instances)

		// What an instance does comes with its next report.
		eventually(t, func() bool {
			return slices.ContainsFunc(b.hub.fleet.Instances(), func(i fleet.Instance) bool { return i.State == fleet.Busy })
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
			status, _ := b.post("/hub/explain", ask)
			require.Equal(t, want, status, ask)
		}
		b.tenant = "another tenant"
		status, _ = b.post("/hub/explain", fmt.Sprintf(`{"prompt_id": %q}`, first))
		require.Equal(t, http.StatusNotFound, status)
	})
}
