package instance

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// What is left of an agent that has another name now shares no GPU, unless something may still run there.
func TestSharesGPU(t *testing.T) {
	report := func(agent string, boot int64, seq uint64, running string) fleet.Report {
		return fleet.Report{Agent: agent, Boot: boot, Seq: seq, Instances: []fleet.InstanceReport{{
			Name: agent, URL: "https://h:1/i/" + agent, Up: true, Boot: 1, Device: "GPU-1", Running: running,
		}}}
	}
	type row struct {
		happens func(*fleet.Registry)
		shares  bool
		later   bool
	}
	beside.Cases(t, map[string]row{
		"both are there": {func(*fleet.Registry) {}, true, false},
		"it is down": {func(f *fleet.Registry) {
			down := report("old", 1, 2, "")
			down.Instances[0].Up = false
			_ = f.Apply(down)
		}, true, false},
		"its agent has left": {func(f *fleet.Registry) { f.AgentStopped("old", 1, "") }, false, false},
		"its agent is gone":  {func(f *fleet.Registry) { f.AgentLeft("old", 1, "") }, false, false},
		"its agent comes without it": {func(f *fleet.Registry) {
			f.AgentStopped("old", 1, "")
			_ = f.Apply(fleet.Report{Agent: "old", Boot: 2, Seq: 1})
		}, false, false},
		"something may still run there": {func(f *fleet.Registry) {
			_ = f.Apply(report("old", 1, 2, "p"))
			f.AgentStopped("old", 1, "")
		}, true, false},
		"it has ended since": {func(f *fleet.Registry) {
			_ = f.Apply(report("old", 1, 2, "p"))
			f.AgentStopped("old", 1, "")
		}, false, true},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			f := fleet.NewRegistry()
			require.NoError(t, f.Apply(report("old", 1, 1, "")))
			require.NoError(t, f.Apply(report("new", 1, 1, "")))
			c.happens(f)
			if c.later {
				time.Sleep(vanishedAfter + time.Second)
			}
			r := &Reports{fleet: f, gpus: func() map[string]string { return nil }}
			i, _ := f.Instance("new")
			require.Equal(t, c.shares, r.SharesGPU(i))
		})
	})
}
