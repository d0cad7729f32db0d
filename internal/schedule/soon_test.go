package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// A job waits for a busy instance with its models loaded only if that one will finish it sooner,
// and if nobody has to wait along with it who need not.
func TestPickHolds(t *testing.T) {
	models := map[string][]string{"sd": {"sd"}, "flux": {"flux"}}
	all := map[string]bool{"sd": true, "flux": true, "plain": true}
	prompt := func(key, class, caller string) job.Job {
		return job.Job{Key: key, Class: class, Requester: job.Requester{Tenant: "t", Caller: caller}}
	}
	idle := Idle{Name: "idle", Classes: all, Loaded: []string{"sd"}}
	busy := func(name string, free time.Duration) Soon {
		return Soon{Idle: Idle{Name: name, Classes: all, Loaded: []string{"flux"}}, Free: free}
	}
	urgent := prompt("a", "flux", "x")
	urgent.Priority = 1
	type row struct {
		waiting      []job.Job
		soon         []Soon
		due, waited  map[string]bool
		unknown      bool
		pairs, holds []string
	}
	each(t, map[string]row{
		"free sooner than loaded":       {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("one", 2*time.Second)}, holds: []string{"a:one"}},
		"loaded sooner than free":       {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("one", 6*time.Second)}, pairs: []string{"a:idle"}},
		"for the one that is sooner":    {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("one", 4*time.Second), busy("two", time.Second)}, holds: []string{"a:two"}},
		"a slow instance is no gain":    {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("slow", 2*time.Second)}, pairs: []string{"a:idle"}},
		"nobody knows how long it runs": {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("one", 2*time.Second)}, unknown: true, pairs: []string{"a:idle"}},
		"it has been overtaken":         {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("one", 2*time.Second)}, due: map[string]bool{"a": true}, pairs: []string{"a:idle"}},
		"it has waited":                 {waiting: []job.Job{prompt("a", "flux", "x")}, soon: []Soon{busy("one", 2*time.Second)}, waited: map[string]bool{"a": true}, pairs: []string{"a:idle"}},
		"its models are loaded":         {waiting: []job.Job{prompt("a", "sd", "x")}, soon: []Soon{busy("one", 0)}, pairs: []string{"a:idle"}},
		"it loads none":                 {waiting: []job.Job{prompt("a", "plain", "x")}, soon: []Soon{busy("one", 0)}, pairs: []string{"a:idle"}},
		"one job waits for an instance": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "flux", "y")}, soon: []Soon{busy("one", 2*time.Second)},
			pairs: []string{"b:idle"}, holds: []string{"a:one"},
		},
		"another client's job goes on": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "y")}, soon: []Soon{busy("one", 2*time.Second)},
			pairs: []string{"b:idle"}, // then there is no idle one left
		},
		"the client's next job would wait, too": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "plain", "x")}, soon: []Soon{busy("one", 2*time.Second)},
			pairs: []string{"a:idle"},
		},
		"a lower priority would wait, too": {
			waiting: []job.Job{urgent, prompt("b", "plain", "y")}, soon: []Soon{busy("one", 2*time.Second)},
			pairs: []string{"a:idle"},
		},
	}, func(t *testing.T, c row) {
		picked := Pick(c.waiting, []Idle{idle}, Warmth{
			Models: models, Overtaking: true, Due: c.due, Waited: c.waited,
			Soon: func() []Soon { return c.soon },
			Ends: func(_ job.Job, instance string) (ran, load time.Duration) {
				switch {
				case c.unknown:
					return 0, 0
				case instance == "slow":
					return time.Minute, 5 * time.Second
				}
				return 4 * time.Second, 5 * time.Second
			},
		})
		var pairs, holds []string
		for _, p := range picked.Pairs {
			pairs = append(pairs, p.Job.Key+":"+p.Instance)
		}
		for _, h := range picked.Held {
			require.Equal(t, 5*time.Second, h.For)
			holds = append(holds, h.Job.Key+":"+h.Instance)
		}
		require.Equal(t, c.pairs, pairs)
		require.Equal(t, c.holds, holds)
	})
}
