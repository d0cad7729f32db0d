package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// waitForBusy lets jobs wait for busy instances.
func (w *Warmth) waitForBusy(random *rand.Rand, classes []string) {
	var list []Soon
	for n := range random.IntN(4) {
		s := Soon{Idle: Idle{Name: fmt.Sprint("busy", n), Classes: map[string]bool{}}, Free: time.Duration(random.IntN(8)) * time.Second}
		s.Classes[classes[random.IntN(4)]] = true
		s.Loaded = w.Models[classes[random.IntN(4)]]
		list = append(list, s)
	}
	w.Soon = func() []Soon { return slices.Clone(list) }
	w.Ends = func(job.Job, string) (time.Duration, time.Duration) { return 4 * time.Second, 5 * time.Second }
	w.Waited = map[string]bool{fmt.Sprint(random.IntN(12)): true}
}

// Whatever is waiting and whatever is idle: no instance stays idle beside a job that it can run,
// unless the job is waiting for a busy one; each instance gets one job that it can run; and only
// jobs that may be overtaken are.
func TestPickLaws(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 4))
	for range 3000 {
		w := Warmth{Models: map[string][]string{}, Overtaking: random.IntN(4) > 0, Due: map[string]bool{}, Late: map[string]bool{}}
		classes := []string{"a", "b", "c", "d"}
		for n, class := range classes[:3] {
			w.Models[class] = []string{fmt.Sprint("m", n), "shared"}[:random.IntN(3)]
		}
		var waiting []job.Job
		for n := range random.IntN(12) {
			j := job.Job{Key: fmt.Sprint(n), Class: classes[random.IntN(4)], Priority: random.IntN(2)}
			j.Rank = job.RankPrefix(j.Priority, []float64{1, -1}[random.IntN(2)])
			j.Tenant, j.Caller = fmt.Sprint(random.IntN(2)), fmt.Sprint(random.IntN(3))
			j.Shape = "xxx"[:random.IntN(4)]
			w.Due[j.Key] = random.IntN(3) == 0
			waiting = append(waiting, j)
		}
		if random.IntN(2) == 0 {
			each := make([]time.Duration, len(waiting))
			for n := range each {
				each[n] = []time.Duration{4 * time.Second, 30 * time.Second, 2 * time.Minute}[random.IntN(3)]
				w.Late[waiting[n].Key] = random.IntN(4) == 0
			}
			w.Takes = lifted(waiting, each)
		}
		var idle []Idle
		for n := range random.IntN(6) {
			i := Idle{Name: fmt.Sprint("i", n), Classes: map[string]bool{}, Refused: map[string]bool{}}
			for _, class := range classes {
				i.Classes[class] = random.IntN(3) > 0
			}
			i.Refused[fmt.Sprint(random.IntN(12))] = true
			i.Loaded = w.Models[classes[random.IntN(4)]]
			i.Tenants = [][]string{nil, nil, {"0"}, {"0", "1"}}[random.IntN(4)]
			idle = append(idle, i)
		}
		gpus := sharedAtRandom(random, idle)
		if random.IntN(2) == 0 {
			w.waitForBusy(random, classes)
		}
		picked := Pick(waiting, idle, w)
		require.Equal(t, picked, Pick(waiting, idle, w))
		pairs, passed := picked.Pairs, picked.Passed

		held := map[string]bool{}
		for _, h := range picked.Held {
			held[h.Job.Key] = true
			require.False(t, w.Due[h.Job.Key] || w.Waited[h.Job.Key])
			require.NotEmpty(t, w.Models[h.Job.Class])
			require.Positive(t, h.For)
		}
		require.Len(t, held, len(picked.Held))
		at, given := map[string]Idle{}, map[string]int{}
		for _, i := range idle {
			at[i.Name] = i
		}
		for n, p := range pairs {
			i, free := at[p.Instance]
			require.True(t, free, "twice")
			i.GPU = gpus[i.GPU]
			require.True(t, i.Can(p.Job))
			delete(at, p.Instance)
			require.NotContains(t, given, p.Job.Key)
			require.False(t, held[p.Job.Key])
			given[p.Job.Key] = n
			for _, before := range waiting[:slices.IndexFunc(waiting, func(j job.Job) bool { return j.Key == p.Job.Key })] {
				if when, has := given[before.Key]; has && when < n || !i.Can(before) {
					continue
				}
				// It could have had this instance, and did not get it.
				require.True(t, mayOvertake(p.Job, before))
				if held[before.Key] {
					continue
				}
				require.False(t, w.Due[before.Key] && (w.Late[before.Key] || before.Tenant != p.Job.Tenant))
				if len(w.Takes) == 0 || w.Late[before.Key] || w.Takes[before.Key] < shorter*w.Takes[p.Job.Key] {
					require.True(t, w.Overtaking)
					require.False(t, w.Due[before.Key])
					require.Len(t, w.Models[p.Job.Class], common(w.Models[p.Job.Class], i.Loaded))
				}
				if !slices.ContainsFunc(pairs, func(p Placement) bool { return p.Job.Key == before.Key }) {
					require.Contains(t, passed, before.Key)
				}
			}
			i.GPU.Take(p.Job)
		}
		for _, name := range picked.Kept {
			require.True(t, slices.ContainsFunc(waiting, func(j job.Job) bool {
				_, has := given[j.Key]
				return !has && (w.Due[j.Key] || !w.Overtaking) && slices.ContainsFunc(idle, func(i Idle) bool {
					return i.GPU != nil && i.GPU.Name == name && i.able(j) && !gpus[i.GPU].Fits(j)
				})
			}), "kept for nobody")
		}
		for _, j := range waiting {
			if _, has := given[j.Key]; !has && !held[j.Key] {
				for _, i := range at {
					kept := i.GPU != nil && slices.Contains(picked.Kept, i.GPU.Name)
					i.GPU = gpus[i.GPU]
					require.False(t, i.Can(j) && !kept, "idle beside a job that it can run")
				}
			}
		}
		for _, key := range passed {
			require.NotContains(t, given, key)
		}
	}
}

// Under a load that never ends, a job is overtaken for no longer than the bound, and most runs find
// their models loaded.
func TestOvertakingIsBounded(t *testing.T) {
	t.Parallel()
	const (
		servers, run, load = 4, 4 * time.Second, 10 * time.Second
		bound              = 20 * time.Second
		count              = 2000
	)
	models, able := map[string][]string{}, map[string]bool{}
	for n := range 6 {
		class := fmt.Sprint("class", n)
		models[class], able[class] = []string{fmt.Sprint(n, ".safetensors")}, true
	}
	simulate := func(overtaking bool) (switches int, longest time.Duration) {
		random := rand.New(rand.NewPCG(3, 3))
		var (
			start   = time.Unix(1_000_000, 0)
			waiting []job.Job
			free    [servers]time.Duration
			loaded  [servers][]string
			passed  Overtaken
			now     time.Duration
		)
		for n := range count {
			waiting = append(waiting, job.Job{
				Key: fmt.Sprint(n), Class: fmt.Sprint("class", random.IntN(6)),
				Requester: job.Requester{Tenant: "t", Caller: fmt.Sprint(n)},
			})
		}
		for len(waiting) > 0 {
			var idle []Idle
			for n := range free {
				if free[n] <= now {
					idle = append(idle, Idle{Name: fmt.Sprint(n), Classes: able, Loaded: loaded[n]})
				}
			}
			window := waiting[:min(len(waiting), len(idle)+16)]
			at := start.Add(now)
			picked := Pick(window, idle, Warmth{Models: models, Overtaking: overtaking, Due: passed.Due(window, bound, at)})
			pairs, over := picked.Pairs, picked.Passed
			passed.Note(over, at)
			for _, key := range over {
				longest = max(longest, at.Sub(passed[key]))
			}
			for _, p := range pairs {
				var n int
				_, err := fmt.Sscan(p.Instance, &n)
				require.NoError(t, err)
				took := run
				if !slices.Equal(loaded[n], models[p.Job.Class]) {
					took += load
					switches++
				}
				free[n], loaded[n] = now+took, models[p.Job.Class]
				waiting = slices.DeleteFunc(waiting, func(j job.Job) bool { return j.Key == p.Job.Key })
			}
			now = slices.Min(free[:])
		}
		return switches, longest
	}
	with, longest := simulate(true)
	without, none := simulate(false)
	require.Zero(t, none)
	require.Positive(t, longest)
	require.Less(t, longest, bound)
	require.Less(t, with, without*6/10, "of %d runs", count)
}
