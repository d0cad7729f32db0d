package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
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
	sideBySide(t, map[string]row{
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

// Whatever waits and whatever is idle: no instance stays idle beside a job that it can
// run, unless that waits for a busy one, each gets one job that it can run, and only those
// are overtaken that may be.
func TestPickLaws(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
				require.True(t, i.can(p.Job))
				delete(at, p.Instance)
				require.NotContains(t, given, p.Job.Key)
				require.False(t, held[p.Job.Key])
				given[p.Job.Key] = n
				for _, before := range waiting[:slices.IndexFunc(waiting, func(j job.Job) bool { return j.Key == p.Job.Key })] {
					if when, has := given[before.Key]; has && when < n || !i.can(before) {
						continue
					}
					// It could have had this instance, and did not.
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
					if !slices.ContainsFunc(pairs, func(p Pair) bool { return p.Job.Key == before.Key }) {
						require.Contains(t, passed, before.Key)
					}
				}
				i.GPU.take(p.Job)
			}
			for _, name := range picked.Kept {
				require.True(t, slices.ContainsFunc(waiting, func(j job.Job) bool {
					_, has := given[j.Key]
					return !has && (w.Due[j.Key] || !w.Overtaking) && slices.ContainsFunc(idle, func(i Idle) bool {
						return i.GPU != nil && i.GPU.name == name && i.able(j) && !gpus[i.GPU].fits(j)
					})
				}), "kept for nobody")
			}
			for _, j := range waiting {
				if _, has := given[j.Key]; !has && !held[j.Key] {
					for _, i := range at {
						kept := i.GPU != nil && slices.Contains(picked.Kept, i.GPU.name)
						i.GPU = gpus[i.GPU]
						require.False(t, i.can(j) && !kept, "idle beside a job that it can run")
					}
				}
			}
			for _, key := range passed {
				require.NotContains(t, given, key)
			}
		}
	})
}

// Under a load that never ends, a job is overtaken for no longer than the bound, and most
// runs find their models loaded.
func TestOvertakingIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
				passed  overtaken
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
				window := waiting[:min(len(waiting), len(idle)+lookBehind)]
				at := start.Add(now)
				picked := Pick(window, idle, Warmth{Models: models, Overtaking: overtaking, Due: passed.due(window, bound, at)})
				pairs, over := picked.Pairs, picked.Passed
				passed.note(over, at)
				for _, key := range over {
					longest = max(longest, at.Sub(passed[key]))
				}
				for _, p := range pairs {
					var n int
					must(fmt.Sscan(p.Instance, &n))
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
	})
}

// withModel submits a job of a client of its own that loads a model.
func withModel(model string) func(*queue.Submission) {
	return func(s *queue.Submission) {
		r := catalog.Requirements{Classes: []string{"EmptyImage"}, Choices: []catalog.Choice{{Class: "Loader", Input: "name", Value: model}}}
		s.Class, s.Body.Requires = r.Signature(), r.Encode()
		s.Client, s.Caller = s.Key, s.Key
	}
}

// haveModels gives the models a.safetensors and b.safetensors to all instances.
func (b *dispatching) haveModels() {
	b.t.Helper()
	info := must(catalog.Parse([]byte(`{"EmptyImage": {"input": {"required": {}}}, "SaveImage": {"input": {"required": {}}},
		"Loader": {"input": {"required": {"name": [["a.safetensors", "b.safetensors"]]}}}}`)))
	b.connects(len(b.instances))
	for _, conn := range b.connected() {
		conn.setInfo(info)
	}
}

// What an instance has loaded is known from what ran there, and unknown once it was
// told to unload or its connection was lost.
func TestWarmInstanceIsPreferred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		b.haveModels()
		where := func(model string) string {
			key := b.submit(picture, withModel(model))
			instance := b.reaches(key, job.Done).Run.Instance
			b.leaves(key)
			return instance
		}
		a := where("a.safetensors")
		other := where("b.safetensors")
		require.NotEqual(t, a, other, "an empty instance is used before models are dropped")
		for range 3 {
			require.Equal(t, other, where("b.safetensors"))
			require.Equal(t, a, where("a.safetensors"))
		}
		require.Contains(t, b.logged(), `why="its models are loaded"`)

		for _, client := range b.Clients() {
			b.Unloaded(client)
		}
		for _, conn := range b.connected() {
			i, _, ok := conn.idle()
			require.True(t, ok)
			require.Empty(t, i.Loaded)
		}
	})
}
