package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// A forecast lets a job begin when Pick would.
func TestForecastKnowsTheBudget(t *testing.T) {
	t.Parallel()
	f := Foresee(Horizon{
		Shared: map[string]*GPU{"g": {Name: "g", Total: 8, Need: needOf}},
		Spots: []Spot{
			{Idle: Idle{Name: "idle"}, Device: "g"},
			{Idle: Idle{Name: "long"}, Device: "g", Free: time.Minute, Shape: "xx"},
			{Idle: Idle{Name: "short"}, Device: "g", Free: time.Second, Shape: "xxxx"},
			{Idle: Idle{Name: "alone"}, Device: "h", Free: time.Hour},
		},
	})
	at := func(n, need int) time.Duration {
		return f.from(&f.Spots[n], job.Job{Shape: "xxxxxxxxxxxx"[:need]})
	}
	require.Zero(t, at(0, 2), "it fits at once")
	require.Zero(t, at(0, 0), "nothing is known")
	require.Equal(t, time.Second, at(0, 6), "beside the long one only")
	require.Equal(t, time.Minute, at(0, 7))
	require.Equal(t, time.Minute, at(0, 12), "alone")
	require.Equal(t, time.Minute, at(1, 12), "its own run first")
	require.Equal(t, time.Hour, at(3, 12))
}

// A forecast gives each job of the line to the instance that finishes it first, including loading
// models, and says nothing if a run time is a guess.
func TestForesee(t *testing.T) {
	t.Parallel()
	both, sd := map[string]bool{"sd": true, "flux": true}, map[string]bool{"sd": true}
	named := func(key, class, shape, tenant string) job.Job {
		return job.Job{Key: key, ID: "id " + key, Class: class, Shape: shape, Requester: job.Requester{Tenant: tenant, Caller: key}}
	}
	h := Horizon{
		Spots: []Spot{
			{Idle: Idle{Name: "warm", Classes: both}, Kind: "fast", Set: "flux", Free: 10 * time.Second},
			{Idle: Idle{Name: "cold", Classes: both}, Kind: "fast"},
			{Idle: Idle{Name: "small", Classes: sd}, Kind: "slow", Free: time.Minute, Guessed: true},
		},
		Line: []job.Job{
			named("a", "flux", "long", "t"), named("b", "flux", "short", "t"), named("c", "sd", "short", "u"), named("d", "video", "long", "t"), named("e", "sd", "new", "t"),
		},
		Estimate: func(shape, kind string) Estimate {
			e := Estimate{Ran: map[string]time.Duration{"long": 20 * time.Second, "short": 4 * time.Second, "new": time.Second}[shape], Load: 15 * time.Second, Source: Learned}
			if shape == "new" {
				e.Source = Guess
			}
			if kind == "slow" {
				e.Ran *= 2
			}
			return e
		},
		Models: func(class string) []string {
			if class == "flux" {
				return []string{"flux"}
			}
			return nil
		},
	}
	f := Foresee(h)
	for key, want := range map[string]time.Duration{
		"a": 30 * time.Second, // where its models are
		"b": 19 * time.Second, // and this one on the idle instance, which loads them
		"c": 23 * time.Second,
		"d": -1, // nobody can run it
		"e": -1, // nobody knows how long it takes
	} {
		end, ok := f.End(key)
		require.True(t, ok, key)
		require.Equal(t, want, end, key)
	}
	_, ok := f.End("x")
	require.False(t, ok)
	require.EqualValues(t, -1, f.Behind(named("x", "sd", "short", "t"), -1))
	require.EqualValues(t, -1, f.Behind(named("x", "video", "short", "t"), 7))
	require.Positive(t, f.Behind(named("x", "sd", "short", "t"), 7))
	ahead, ok := f.Ahead(h.Line[3])
	require.True(t, ok)
	require.Equal(t, Ahead{Own: []string{"id a", "id b"}, Others: 1}, ahead)
	_, ok = f.Ahead(named("x", "sd", "short", "t"))
	require.False(t, ok)
	require.Zero(t, h.Spots[1].Free, "what it started from stays as it is")

	nobody := func(string) bool { return false }
	require.Equal(t, []time.Duration{0, 10 * time.Second, 14 * time.Second, -1, 18 * time.Second}, h.Starts(h.Line, nobody))
	require.Equal(t, []time.Duration{0, 0}, h.Starts(h.Line[:2], func(instance string) bool { return instance == "warm" }))

	h.ShortFirst = true
	h.Overtaking = true
	ahead, ok = Foresee(h).Ahead(h.Line[0])
	require.True(t, ok)
	require.Equal(t, Ahead{Own: []string{"id e", "id b"}, Others: 1}, ahead, "short ones go first")
}

func TestRemaining(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ estimate, elapsed, want time.Duration }{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 4 * time.Second, 6 * time.Second},
		{10 * time.Second, 10 * time.Second, time.Second},
		{10 * time.Second, time.Minute, 6 * time.Second},
	} {
		require.Equal(t, c.want, Remaining(c.estimate, c.elapsed))
	}
}
