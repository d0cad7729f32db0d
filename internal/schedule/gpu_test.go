package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// needOf is how much memory jobs need in these tests: as many bytes as their shape is long.
func needOf(shape string) int64 { return int64(len(shape)) }

// sharedAtRandom lets some idle instances share GPUs that others may be using. It returns copies of
// the GPUs, for counting what a decision gives out.
func sharedAtRandom(random *rand.Rand, idle []Idle) map[*GPU]*GPU {
	gpus := []*GPU{nil, nil}
	copies := map[*GPU]*GPU{}
	need := func(shape string) int64 { return needOf(shape) }
	for n := range random.IntN(3) {
		g := &GPU{Name: fmt.Sprint("g", n), Total: 3, Need: need, Busy: random.IntN(2) == 0}
		if g.Busy {
			g.Taken = random.Int64N(4)
		}
		c := *g
		gpus, copies[g] = append(gpus, g), &c
	}
	for n := range idle {
		idle[n].GPU = gpus[random.IntN(len(gpus))]
	}
	return copies
}

func TestPickSharesGPUs(t *testing.T) {
	t.Parallel()
	able := map[string]bool{"c": true}
	jobOf := func(key string, need int) job.Job {
		return job.Job{Key: key, Class: "c", Shape: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[:need], Requester: job.Requester{Caller: key, Tenant: key}}
	}
	cases := map[string]struct {
		waiting []job.Job
		busy    bool
		taken   int64
		w       Warmth
		want    []string
		passed  []string
		kept    []string
	}{
		"two that fit together":      {waiting: []job.Job{jobOf("a", 12), jobOf("b", 12)}, want: []string{"a", "b"}},
		"two that do not":            {waiting: []job.Job{jobOf("a", 13), jobOf("b", 12)}, w: Warmth{Overtaking: true}, want: []string{"a"}},
		"too large, but alone":       {waiting: []job.Job{jobOf("a", 30)}, want: []string{"a"}},
		"nothing is known of it":     {waiting: []job.Job{jobOf("a", 0)}, busy: true, taken: 24, want: []string{"a"}},
		"nothing is known of it (2)": {waiting: []job.Job{jobOf("a", 24)}, busy: true, want: []string{"a"}},
		"too little is left":         {waiting: []job.Job{jobOf("a", 12)}, busy: true, taken: 13, w: Warmth{Overtaking: true}},
		"a smaller one goes first": {
			waiting: []job.Job{jobOf("a", 12), jobOf("b", 8)}, busy: true, taken: 13, w: Warmth{Overtaking: true},
			want: []string{"b"}, passed: []string{"a"},
		},
		"but not for ever": {
			waiting: []job.Job{jobOf("a", 12), jobOf("b", 8)}, busy: true, taken: 13,
			w: Warmth{Overtaking: true, Due: map[string]bool{"a": true}}, kept: []string{"g"},
		},
		"nor where nobody overtakes": {waiting: []job.Job{jobOf("a", 12), jobOf("b", 8)}, busy: true, taken: 13, kept: []string{"g"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &GPU{Name: "g", Total: 24, Need: needOf, Busy: c.busy, Taken: c.taken}
			before := *g
			picked := Pick(c.waiting, []Idle{{Name: "one", Classes: able, GPU: g}, {Name: "two", Classes: able, GPU: g}}, c.w)
			var got []string
			for _, p := range picked.Pairs {
				got = append(got, p.Job.Key)
			}
			require.Equal(t, c.want, got)
			require.Equal(t, c.passed, picked.Passed)
			require.Equal(t, c.kept, picked.Kept)
			require.Equal(t, []any{before.Taken, before.Busy, before.Kept}, []any{g.Taken, g.Busy, g.Kept}, "Pick changes nothing")
		})
	}
}

// A stream of small jobs, one of which is running at any time, holds up a large one for no longer
// than the bound.
func TestLargeJobsGetTheirGPU(t *testing.T) {
	t.Parallel()
	const run, bound = 4 * time.Second, 10 * time.Second
	able := map[string]bool{"c": true}
	large := job.Job{Key: "large", Class: "c", Shape: "xxxxxxxx", Requester: job.Requester{Caller: "large", Tenant: "large"}}
	small := job.Job{Key: "small", Class: "c", Shape: "x", Requester: job.Requester{Caller: "small", Tenant: "small"}}
	now := time.Now()
	begun := now
	busy := map[string]time.Time{"one": now.Add(run / 2)}
	var o Overtaken
	for ; now.Sub(begun) < time.Minute; now = now.Add(run / 4) {
		g := &GPU{Name: "g", Total: 8, Need: needOf}
		var idle []Idle
		for _, name := range []string{"one", "two"} {
			if busy[name].After(now) {
				g.Take(small)
			} else {
				idle = append(idle, Idle{Name: name, Classes: able, GPU: g})
			}
		}
		waiting := []job.Job{large, small, small}
		picked := Pick(waiting, idle, Warmth{Overtaking: true, Due: o.Due(waiting, bound, now)})
		o.Note(picked.Passed, now)
		for _, p := range picked.Pairs {
			if p.Job.Key == large.Key {
				require.LessOrEqual(t, now.Sub(begun), bound+2*run)
				return
			}
			busy[p.Instance] = now.Add(run)
		}
	}
	require.Fail(t, "the large job never began")
}

// Four GPUs of 24 GB with two instances each: with the budget, no run begins beside one that leaves
// it too little memory; without it, many do. All jobs run either way.
func TestBudgetKeepsRunsFromEachOther(t *testing.T) {
	t.Parallel()
	const count, gpus, total = 2000, 4, 24
	able := map[string]bool{"c": true}
	day := func(budget bool) (short int, waited time.Duration) {
		type run struct {
			end  time.Duration
			need int64
		}
		random := rand.New(rand.NewPCG(7, 11))
		var jobs []job.Job
		var arrivals, takes []time.Duration
		at := time.Duration(0)
		for n := range count {
			at += time.Duration(random.ExpFloat64() * float64(1600*time.Millisecond))
			need := []int{6, 6, 6, 10, 10, 18}[random.IntN(6)]
			j := job.Job{Key: fmt.Sprint(n), Class: "c", Shape: "xxxxxxxxxxxxxxxxxxxxxxxx"[:need]}
			j.Tenant, j.Caller = fmt.Sprint(n%5), fmt.Sprint(n%5)
			jobs, arrivals, takes = append(jobs, j), append(arrivals, at), append(takes, time.Duration(need)*time.Second)
		}
		var (
			waiting []job.Job
			since   = map[string]int{}
			busy    = map[string]run{}
			o       Overtaken
			epoch   = time.Now()
			next    int
			begun   int
		)
		for now := time.Duration(0); begun < count; now += 500 * time.Millisecond {
			for ; next < count && arrivals[next] <= now; next++ {
				since[jobs[next].Key] = next
				waiting = append(waiting, jobs[next])
			}
			var idle []Idle
			taken := make([]int64, gpus)
			for g := range gpus {
				shared := &GPU{Name: fmt.Sprint(g), Total: total, Need: needOf}
				for _, side := range []string{"a", "b"} {
					name := fmt.Sprint(g, side)
					if r, runs := busy[name]; runs && r.end > now {
						shared.Busy, shared.Taken = true, shared.Taken+r.need
					} else {
						delete(busy, name)
						idle = append(idle, Idle{Name: name, Classes: able, GPU: shared})
					}
				}
				taken[g] = shared.Taken
			}
			if !budget {
				for n := range idle {
					idle[n].GPU = nil
				}
			}
			picked := Pick(waiting, idle, Warmth{Overtaking: true, Due: o.Due(waiting, 10*time.Second, epoch.Add(now))})
			o.Note(picked.Passed, epoch.Add(now))
			gone := map[string]bool{}
			for _, p := range picked.Pairs {
				n, g := since[p.Job.Key], int(p.Instance[0]-'0')
				need := needOf(p.Job.Shape)
				if taken[g] > 0 && taken[g]+need > total {
					short++
				}
				taken[g] += need
				busy[p.Instance] = run{now + takes[n], need}
				waited += now - arrivals[n]
				gone[p.Job.Key] = true
				begun++
			}
			var left []job.Job
			for _, j := range waiting {
				if !gone[j.Key] {
					left = append(left, j)
				}
			}
			waiting = left
			require.Less(t, now, 24*time.Hour, "jobs are left")
		}
		return short, waited / count
	}
	without, waitWithout := day(false)
	with, waitWith := day(true)
	t.Logf("of %d runs, %d found too little memory without the budget (mean wait %v), and %d with it (%v)", count, without, waitWithout, with, waitWith)
	require.Zero(t, with)
	require.Greater(t, without, count/50)
	require.Less(t, waitWith, time.Minute, "the load is one that the GPUs can bear")
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	p := Pair{"s", "k", "gpu"}
	s := Structure{Key: "s", Kind: "k", Work: 1}
	var n Needs
	require.Zero(t, n.Of(s, "gpu"), "nothing is known")
	for _, need := range []int64{6, 7, 6, 23} {
		n.Add(p, Need{Work: 1, Bytes: need * gib})
	}
	require.EqualValues(t, 7*gib, n.Of(s, "gpu"), "one odd run of four says nothing")
	require.Zero(t, n.Of(s, "other"))
	n.Add(p, Need{Work: 8, Bytes: 16 * gib})
	require.EqualValues(t, 7*gib, n.Of(s, "gpu"))
	require.EqualValues(t, 16*gib, n.Of(Structure{Key: "s", Kind: "k", Work: 6}, "gpu"), "a larger picture needs more")
	n.Set(p, []Need{{Work: 1, Bytes: gib}})
	n.Set(p, nil)
	n.Add(p, Need{Work: 1, Bytes: -1})
	require.EqualValues(t, gib, n.Of(s, "gpu"))
	require.EqualValues(t, gib, n.Of(Structure{Key: "s", Kind: "k", Work: 100}, "gpu"), "better than nothing")
	for range 2 * keptSamples {
		n.Add(p, Need{Work: 1, Bytes: 2 * gib})
	}
	require.Len(t, n.known[p], keptSamples)
	for range MaxCells + 5 {
		n.Add(Pair{Structure: strings.Repeat("x", len(n.known))}, Need{Work: 1, Bytes: gib})
	}
	require.LessOrEqual(t, len(n.known), MaxCells)
}

func TestNeedsAreStoredBesideDurations(t *testing.T) {
	t.Parallel()
	p := Pair{"s", "k", "gpu: one"}
	read, ok := ParseNeedField(NeedField(p))
	require.True(t, ok)
	require.Equal(t, p, read)
	_, ok = ParseNeedField(p.Field())
	require.False(t, ok)
	text := Need{Work: 1.5, Bytes: 3<<20 - 1}.Encode()
	require.Equal(t, "1.5@3", text)
	require.Equal(t, []Need{{1.5, 3 << 20}, {2, 4 << 20}}, DecodeNeeds(text+" 1w200 x@1 1@x 1@-1 NaN@1 2@4"))
	require.Empty(t, DecodeSamples(text), "an older hub learns no time from it")
}

func FuzzDecodeNeeds(f *testing.F) {
	f.Add("1.5@8192 1w200 1e9@99999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		needs := DecodeNeeds(text)
		require.LessOrEqual(t, len(needs), keptSamples)
		for _, n := range needs {
			require.Positive(t, n.Bytes)
			require.Len(t, DecodeNeeds(n.Encode()), 1)
		}
	})
}
