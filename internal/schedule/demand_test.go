package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// unbounded is a class without a budget.
func unbounded(least, most int) ScaleBounds {
	return ScaleBounds{Min: least, Max: most, IdleAfter: 5 * time.Minute, Left: math.Inf(1)}
}

// jobsOf are n waiting jobs of a length.
func jobsOf(n int, each time.Duration) []time.Duration {
	return slices.Repeat([]time.Duration{each}, n)
}

func idleFor(name string, d time.Duration) Elastic { return Elastic{Name: name, Idle: d} }

func TestWanted(t *testing.T) {
	busy := Elastic{Name: "busy", Busy: true, Left: 10 * time.Second}
	warm := Elastic{Name: "warm", Idle: time.Hour, Needed: true}
	paid := ScaleBounds{Max: 10, IdleAfter: 9 * time.Minute, Price: 6, Left: 2.5} // an instance costs 1 at least
	type row struct {
		bounds  ScaleBounds
		demand  Demand
		wanted  int
		release []string
	}
	beside.Cases(t, map[string]row{
		"nothing to do":                 {unbounded(0, 5), Demand{}, 0, nil},
		"min":                           {unbounded(2, 5), Demand{}, 2, nil},
		"a short job":                   {unbounded(0, 5), Demand{Waiting: jobsOf(1, time.Second)}, 1, nil},
		"a long job needs one instance": {unbounded(0, 5), Demand{Waiting: jobsOf(1, time.Hour)}, 1, nil},
		"many short jobs need one":      {unbounded(0, 5), Demand{Waiting: jobsOf(20, time.Second)}, 1, nil},
		"many jobs":                     {unbounded(0, 9), Demand{Waiting: jobsOf(12, 30*time.Second)}, 6, nil},
		"max":                           {unbounded(0, 4), Demand{Waiting: jobsOf(100, time.Minute)}, 4, nil},
		"what starts is counted":        {unbounded(0, 9), Demand{Waiting: jobsOf(12, 30*time.Second), Starting: 6}, 6, nil},
		"a busy one will be free first": {unbounded(0, 9), Demand{Waiting: jobsOf(2, 20*time.Second), Instances: []Elastic{busy}}, 1, nil},
		"a busy one that takes long": {
			unbounded(0, 9), Demand{Waiting: jobsOf(1, time.Second), Instances: []Elastic{{Name: "long", Busy: true, Left: 10 * time.Minute}}}, 2, nil,
		},
		"a slow start is not waited for": {
			unbounded(0, 9), Demand{Waiting: jobsOf(8, 30*time.Second), Instances: []Elastic{busy}, Start: 5 * time.Minute}, 1, nil,
		},
		"a steady load":      {unbounded(0, 9), Demand{Load: 3}, 4, nil},
		"idle for too short": {unbounded(0, 9), Demand{Instances: []Elastic{idleFor("a", time.Minute)}}, 1, nil},
		"idle for long": {
			unbounded(0, 9), Demand{Instances: []Elastic{idleFor("a", 6*time.Minute), busy, idleFor("b", 7*time.Minute)}}, 1, []string{"b", "a"},
		},
		"not below min":       {unbounded(1, 9), Demand{Instances: []Elastic{idleFor("a", 6*time.Minute), idleFor("b", 7*time.Minute)}}, 1, []string{"b"}},
		"a needed one stays":  {unbounded(0, 9), Demand{Instances: []Elastic{warm}}, 1, nil},
		"a trifling load":     {unbounded(0, 9), Demand{Load: 0.05}, 0, nil},
		"a trifle keeps none": {unbounded(0, 9), Demand{Load: 0.05, Instances: []Elastic{idleFor("a", time.Hour)}}, 0, []string{"a"}},
		"the load needs one":  {unbounded(0, 9), Demand{Load: 0.5, Instances: []Elastic{idleFor("a", time.Hour)}}, 1, nil},
		"a job that cannot run keeps one": {
			unbounded(0, 9), Demand{Waiting: jobsOf(1, time.Second), Instances: []Elastic{idleFor("a", 6*time.Minute), idleFor("b", 7*time.Minute), busy}}, 2, []string{"b"},
		},
		"above max":               {unbounded(0, 1), Demand{Waiting: jobsOf(1, time.Second), Instances: []Elastic{busy, idleFor("a", 6*time.Minute)}}, 1, []string{"a"}},
		"a budget for two":        {paid, Demand{Waiting: jobsOf(100, time.Minute)}, 2, nil},
		"the budget is too small": {paid, Demand{Instances: []Elastic{busy, idleFor("a", time.Second), idleFor("b", 2*time.Second)}}, 2, []string{"b"}},
		"a busy one is not stopped": {
			ScaleBounds{Min: 1, Max: 10, IdleAfter: time.Minute, Price: 1}, Demand{Waiting: jobsOf(9, time.Minute), Instances: []Elastic{busy}}, 1, nil,
		},
	}, func(t *testing.T, c row) {
		s := c.bounds.Wanted(c.demand)
		require.Equal(t, c.wanted, s.Wanted, s.Why)
		require.Equal(t, c.release, s.Release)
		require.NotEmpty(t, s.Why)
	})
}

// While jobs keep coming no instance is ever idle, so a spent budget must end busy ones too, those that end soonest first.
func TestSpentBudgetDrains(t *testing.T) {
	t.Parallel()
	b := ScaleBounds{Max: 10, IdleAfter: 9 * time.Minute, Price: 6, Left: 2.5} // enough for two
	d := Demand{Waiting: jobsOf(99, time.Minute), Instances: []Elastic{
		{Name: "a", Busy: true, Left: 3 * time.Second}, {Name: "b", Busy: true, Left: time.Second}, idleFor("c", time.Second), {Name: "d", Busy: true, Left: 2 * time.Second},
	}}
	s := b.Wanted(d)
	require.Equal(t, Scale{Wanted: 3, Release: []string{"c"}, Drain: []string{"b"}, Why: s.Why}, s)
	b.Left = 0
	require.Equal(t, []string{"b", "d", "a"}, b.Wanted(d).Drain)
	b.Left = 10
	require.Empty(t, b.Wanted(d).Drain)
}

// randomDemand is any state of a class.
func randomDemand(random *rand.Rand) (ScaleBounds, Demand) {
	b := unbounded(random.IntN(3), 3+random.IntN(8))
	if random.IntN(2) == 0 {
		b.Price, b.Left = 1, random.Float64()
	}
	d := Demand{Load: random.Float64() * 8, Starting: random.IntN(3), Start: time.Duration(random.IntN(300)) * time.Second}
	d.Waiting = jobsOf(random.IntN(30), time.Duration(1+random.IntN(200))*time.Second)
	for n := range random.IntN(9) {
		i := Elastic{Name: fmt.Sprint(n), Busy: random.IntN(2) == 0, Needed: random.IntN(3) == 0}
		if i.Busy {
			i.Left = time.Duration(random.IntN(100)) * time.Second
		} else {
			i.Idle = time.Duration(random.IntN(900)) * time.Second
		}
		d.Instances = append(d.Instances, i)
	}
	return b, d
}

// Whatever there is: no more than max and the budget are started, none goes that is busy, more work
// never asks for less, and asking again after what was asked for has begun asks for nothing else:
// only a budget that ended what it had to may end more that is idle.
func TestWantedLaws(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 5))
	for range 20_000 {
		b, d := randomDemand(random)
		have := len(d.Instances) + d.Starting
		s := b.Wanted(d)
		require.LessOrEqual(t, s.Wanted, max(have, min(b.Max, b.afford(d))), "%+v %+v", b, d)
		require.Equal(t, max(s.Wanted, have), s.Wanted+len(s.Release), "%+v %+v", b, d)
		if afford := b.afford(d); s.Wanted-len(s.Drain) > afford {
			require.Zero(t, len(d.Instances)-len(s.Release)-len(s.Drain), "only what is starting may cost more than is left")
		}
		for _, i := range d.Instances {
			require.False(t, i.Busy && slices.Contains(s.Release, i.Name), "%+v %+v", b, d)
		}

		more := d
		more.Waiting = append(slices.Clone(d.Waiting), time.Minute)
		require.GreaterOrEqual(t, b.Wanted(more).Wanted, s.Wanted, "%+v %+v", b, d)

		after := d
		after.Starting += max(0, s.Wanted-have)
		after.Instances = slices.DeleteFunc(slices.Clone(d.Instances), func(i Elastic) bool { return slices.Contains(s.Release, i.Name) })
		again := b.Wanted(after)
		require.LessOrEqual(t, again.Wanted, s.Wanted, "%+v %+v: %s, then %s", b, d, s.Why, again.Why)
		if b.Price == 0 {
			require.Equal(t, s.Wanted, again.Wanted, "%+v %+v: %s, then %s", b, d, s.Why, again.Why)
		}
	}
}

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
	at := func(n, need int) time.Duration { return f.from(&f.Spots[n], job.Job{Shape: "xxxxxxxxxxxx"[:need]}) }
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
	own, ok := f.Before(h.Line[3])
	require.True(t, ok)
	require.Equal(t, []string{"id a", "id b"}, own)
	_, ok = f.Before(named("x", "sd", "short", "t"))
	require.False(t, ok)
	require.Zero(t, h.Spots[1].Free, "what it started from stays as it is")

	nobody := func(string) bool { return false }
	require.Equal(t, []time.Duration{0, 10 * time.Second, 14 * time.Second, -1, 18 * time.Second}, h.Starts(h.Line, nobody))
	require.Equal(t, []time.Duration{0, 0}, h.Starts(h.Line[:2], func(instance string) bool { return instance == "warm" }))

	h.ShortFirst = true
	h.Overtaking = true
	own, ok = Foresee(h).Before(h.Line[0])
	require.True(t, ok)
	require.Empty(t, own, "short ones may go first, but nobody can say which will")
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
