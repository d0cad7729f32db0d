package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestPickWarm(t *testing.T) {
	models := map[string][]string{"sd": {"sd.safetensors"}, "flux": {"clip.safetensors", "flux.safetensors"}, "plain": nil}
	all := map[string]bool{"sd": true, "flux": true, "plain": true}
	prompt := func(key, class, caller string, change ...func(*job.Job)) job.Job {
		j := job.Job{Key: key, Class: class, Requester: job.Requester{Tenant: "t", Caller: caller, Client: caller}}
		for _, do := range change {
			do(&j)
		}
		return j
	}
	sd, flux, cold := Idle{Name: "sd", Classes: all, Loaded: models["sd"]}, Idle{Name: "flux", Classes: all, Loaded: models["flux"]}, Idle{Name: "cold", Classes: all}
	named := func(i Idle, name string, change ...func(*Idle)) Idle {
		i.Name = name
		for _, do := range change {
			do(&i)
		}
		return i
	}
	type row struct {
		waiting []job.Job
		idle    []Idle
		never   bool
		due     map[string]bool
		want    []string
		passed  []string
	}
	each(t, map[string]row{
		"each where its models are": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "y")}, idle: []Idle{sd, flux},
			want: []string{"a:flux", "b:sd"},
		},
		"loaded models count more than the client": {
			waiting: []job.Job{prompt("a", "flux", "x")}, idle: []Idle{named(sd, "one", func(i *Idle) { i.LastClient = "x" }), flux},
			want: []string{"a:flux"},
		},
		"the client decides among those with the models": {
			waiting: []job.Job{prompt("a", "sd", "x")}, idle: []Idle{sd, named(sd, "last", func(i *Idle) { i.LastClient = "x" })},
			want: []string{"a:last"},
		},
		"a part of the models is better than none": {
			waiting: []job.Job{prompt("a", "flux", "x")}, idle: []Idle{sd, named(cold, "clip", func(i *Idle) { i.Loaded = []string{"clip.safetensors"} })},
			want: []string{"a:clip"},
		},
		"an empty one is used before models are dropped": {
			waiting: []job.Job{prompt("a", "flux", "x")}, idle: []Idle{sd, cold},
			want: []string{"a:cold"},
		},
		"those are dropped that another instance has, too": {
			waiting: []job.Job{prompt("a", "plain", "x")}, idle: []Idle{flux, sd, named(sd, "sd2")},
			want: []string{"a:sd"},
		},
		"another caller's job overtakes": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "y")}, idle: []Idle{sd},
			want: []string{"b:sd"}, passed: []string{"a"},
		},
		"not if that is off": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "y")}, idle: []Idle{sd}, never: true,
			want: []string{"a:sd"},
		},
		"not one that was overtaken for long enough": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "y")}, idle: []Idle{sd}, due: map[string]bool{"a": true},
			want: []string{"a:sd"},
		},
		"not the caller's own": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "x")}, idle: []Idle{sd},
			want: []string{"a:sd"},
		},
		"not one of higher priority": {
			waiting: []job.Job{prompt("a", "flux", "x", func(j *job.Job) { j.Priority = 1 }), prompt("b", "sd", "y")}, idle: []Idle{sd},
			want: []string{"a:sd"},
		},
		"not one that was posted to the front": {
			waiting: []job.Job{prompt("a", "flux", "x", func(j *job.Job) { j.Rank = job.RankPrefix(0, -3) }), prompt("b", "sd", "y")}, idle: []Idle{sd},
			want: []string{"a:sd"},
		},
		"priorities of other tenants are theirs": {
			waiting: []job.Job{prompt("a", "flux", "x", func(j *job.Job) { j.Priority, j.Tenant = 100, "u" }), prompt("b", "sd", "y")}, idle: []Idle{sd},
			want: []string{"b:sd"}, passed: []string{"a"},
		},
		"not one without models": {
			waiting: []job.Job{prompt("a", "plain", "x"), prompt("b", "sd", "y")}, idle: []Idle{sd},
			want: []string{"a:sd"},
		},
		"none in between": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "flux", "y"), prompt("c", "sd", "y")}, idle: []Idle{sd},
			want: []string{"a:sd"},
		},
		"who gets another instance was not overtaken": {
			waiting: []job.Job{prompt("a", "flux", "x"), prompt("b", "sd", "y")}, idle: []Idle{sd, named(sd, "sd2")},
			want: []string{"b:sd", "a:sd2"},
		},
	}, func(t *testing.T, c row) {
		picked := Pick(c.waiting, c.idle, Warmth{Models: models, Overtaking: !c.never, Due: c.due})
		pairs, passed := picked.Pairs, picked.Passed
		var got []string
		for _, p := range pairs {
			got = append(got, p.Job.Key+":"+p.Instance)
			require.NotEmpty(t, p.Why)
		}
		require.Equal(t, c.want, got)
		require.Equal(t, c.passed, passed)
	})
}

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
