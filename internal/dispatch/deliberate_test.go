package dispatch

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// A job is not blamed for the death of a process that somebody has ended on purpose:
// neither an attempt nor a kill is counted. Any other death is.
func TestDeliberateRestartIsNoKill(t *testing.T) {
	type row struct {
		// before happens while the job runs, after when the process is dead.
		before, after func(b *dispatching, report func(fleet.InstanceReport))
		blamed        bool
	}
	inBubbles(t, map[string]row{
		"nobody has asked for it": {blamed: true},
		"an operator drains the instance": {before: func(b *dispatching, _ func(fleet.InstanceReport)) {
			b.fleet.SetDraining("gpu", true)
		}},
		"its agent stops": {before: func(_ *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Draining: true, Boot: 1})
		}},
		"a restart is due": {before: func(_ *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Restarting: true, Boot: 1})
		}},
		"the agent says so when it is asked": {after: func(b *dispatching, _ func(fleet.InstanceReport)) {
			b.instances[0].on("GET /ws", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set(comfyui.UnreachableHeader, comfyui.Restarting)
				w.WriteHeader(http.StatusBadGateway)
			})
		}},
		"the next process was asked for": {after: func(b *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Restarted: true, Boot: 2})
			b.instances[0].Restart()
		}},
		"this process was asked for, and dies": {before: func(_ *dispatching, report func(fleet.InstanceReport)) {
			report(fleet.InstanceReport{Restarted: true, Boot: 1})
		}, blamed: true},
	}, func(t *testing.T, tt row) {
		b := newDispatching(t, 0)
		a := hire(b, newScripted(t))
		report := func(r fleet.InstanceReport) {
			a.seq++
			r.Name, r.URL, r.Kind, r.Up = a.i.name, a.i.web.URL, fleet.KindComfyUI, true
			require.NoError(t, b.fleet.Apply(fleet.Report{Agent: "machine", Boot: a.boot, Seq: a.seq, Instances: []fleet.InstanceReport{r}}))
		}
		report(fleet.InstanceReport{Boot: 1})
		key := b.submit(endless)
		b.runs(key)
		if tt.before != nil {
			tt.before(b, report)
		}
		a.i.on("GET /ws", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set(comfyui.UnreachableHeader, comfyui.Gone)
			w.WriteHeader(http.StatusBadGateway)
		})
		if tt.after != nil {
			a.i.on("GET /ws", nil)
			tt.after(b, report)
		}
		a.i.DropSockets()
		reason := b.lost(key)
		j := b.job(key)
		if tt.blamed {
			require.Contains(t, reason, "the instance died")
			require.Equal(t, 1, j.Kills)
		} else {
			require.Contains(t, reason, "restarted on purpose")
			require.Zero(t, j.Kills)
			require.Equal(t, 1, j.Excuses)
		}
		must(b.queue.Cancel(t.Context(), key))
	})
}

// An agent that has said that it leaves may come back: the instance works on, so its run
// is kept for longer than that of an agent that was found dead.
func TestRunOfAnAgentThatRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		a := hire(b, newScripted(t))
		a.report("")
		require.Equal(t, 15*time.Second, b.patienceFor("gpu"))
		key := b.submit(working)
		b.runs(key)
		b.fleet.AgentStopped("machine", a.boot, "")
		require.Equal(t, 90*time.Second, b.patienceFor("gpu"))
		a.i.DropSockets()
		a.boot++
		a.seq = 0
		a.report(key)
		require.Equal(t, 15*time.Second, b.patienceFor("gpu"))
		require.Empty(t, b.reaches(key, job.Done).Lost)
		b.fleet.AgentLeft("machine", a.boot, "")
		require.Equal(t, 15*time.Second, b.patienceFor("gpu"), "it was found dead")
	})
}
