package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Four GPUs of 24 GB with two instances each: with the budget no run begins beside one that
// leaves it too little memory, and without it many do. All jobs run either way.
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
			o       overtaken
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
				shared := &sharedGPU{name: fmt.Sprint(g), total: total, need: needOf}
				for _, side := range []string{"a", "b"} {
					name := fmt.Sprint(g, side)
					if r, runs := busy[name]; runs && r.end > now {
						shared.busy, shared.taken = true, shared.taken+r.need
					} else {
						delete(busy, name)
						idle = append(idle, Idle{Name: name, Classes: able, GPU: shared})
					}
				}
				taken[g] = shared.taken
			}
			if !budget {
				for n := range idle {
					idle[n].GPU = nil
				}
			}
			picked := Pick(waiting, idle, Warmth{Overtaking: true, Due: o.due(waiting, 10*time.Second, epoch.Add(now))})
			o.note(picked.Passed, epoch.Add(now))
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
