package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// elasticDay simulates a day of one class of instances, second by second: jobs go to idle instances in the
// order in which they came, and a provider starts and stops instances.
type elasticDay struct {
	bounds ScaleBounds
	// fixed is the size of a fleet that never changes; 0 for one that follows Wanted.
	fixed int
	// start is how long a start takes, fails is how many of ten fail, and gives is how many
	// instances the provider has: 0 for any number.
	start func(*rand.Rand) time.Duration
	fails int
	gives int

	now       int
	queue     []dayJob
	arrived   []dayJob // within the last minutes
	instances []dayInstance
	starting  []int // when each will be there; negative if it never will
	seconds   int   // paid
	waits     []int
	starts    int
	most      int
	started   []int // how long the last starts took
}

type dayJob struct{ at, takes int }

type dayInstance struct{ name, until int } // until: busy before it, idle since

// dayJobs are the jobs of a day: a few at night, more by day, and ten times somebody who posts many
// at once.
func dayJobs() (jobs []dayJob) {
	random := rand.New(rand.NewPCG(7, 11))
	takes := func() int { return 10 + random.IntN(50) }
	for at := range 24 * 3600 {
		hourly := 10.0
		if hour := at / 3600; hour >= 8 && hour < 20 {
			hourly = 200
		}
		if random.Float64() < hourly/3600 {
			jobs = append(jobs, dayJob{at, takes()})
		}
		if at%4500 == 0 && at > 6*3600 && at < 19*3600 {
			for range 120 {
				jobs = append(jobs, dayJob{at, takes()})
			}
		}
	}
	return jobs
}

// run runs the day, and goes on until all jobs have ended.
func (e *elasticDay) run(jobs []dayJob) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range e.fixed {
		e.instances = append(e.instances, dayInstance{name: n})
	}
	for total := len(jobs); len(e.waits) < total || e.now < 24*3600; e.now++ {
		for len(jobs) > 0 && jobs[0].at <= e.now {
			e.queue, e.arrived, jobs = append(e.queue, jobs[0]), append(e.arrived, jobs[0]), jobs[1:]
		}
		e.appear()
		if e.fixed == 0 && e.now%5 == 0 {
			e.scale(random)
		}
		for n := range e.instances {
			if i := &e.instances[n]; i.until <= e.now && len(e.queue) > 0 {
				j := e.queue[0]
				e.queue, i.until = e.queue[1:], e.now+j.takes
				e.waits = append(e.waits, e.now-j.at)
			}
		}
		e.seconds += len(e.instances) + len(e.starting)
		e.most = max(e.most, len(e.instances))
	}
}

// appear lets what was started join. What failed is noticed after ten minutes.
func (e *elasticDay) appear() {
	e.starting = slices.DeleteFunc(e.starting, func(at int) bool {
		if at > 0 && at <= e.now {
			e.instances = append(e.instances, dayInstance{e.starts, e.now})
			e.starts++
		}
		return at > 0 && at <= e.now || at < 0 && -at+600 <= e.now
	})
}

// scale does what Wanted says.
func (e *elasticDay) scale(random *rand.Rand) {
	const window = 300
	e.arrived = slices.DeleteFunc(e.arrived, func(j dayJob) bool { return j.at < e.now-window })
	d := Demand{Starting: len(e.starting)}
	for _, j := range e.arrived {
		d.Load += float64(j.takes) / window
	}
	for _, j := range e.queue {
		d.Waiting = append(d.Waiting, time.Duration(j.takes)*time.Second)
	}
	for _, i := range e.instances {
		left := time.Duration(i.until-e.now) * time.Second
		d.Instances = append(d.Instances, Elastic{Name: fmt.Sprint(i.name), Busy: left > 0, Left: max(left, 0), Idle: max(-left, 0)})
	}
	for _, took := range e.started {
		d.Start += time.Duration(took) * time.Second / time.Duration(len(e.started))
	}
	s := e.bounds.Wanted(d)
	e.instances = slices.DeleteFunc(e.instances, func(i dayInstance) bool { return slices.Contains(s.Release, fmt.Sprint(i.name)) })
	for have := len(d.Instances) + d.Starting; have < s.Wanted; have++ {
		if e.gives > 0 && len(e.instances)+len(e.starting) >= e.gives {
			break
		}
		took := int(e.start(random).Seconds())
		at := e.now + took
		if random.IntN(10) < e.fails {
			at = -e.now
		} else if e.started = append(e.started, took); len(e.started) > 10 {
			e.started = e.started[1:]
		}
		e.starting = append(e.starting, at)
	}
}

// mean and p95 are of the waits, in seconds.
func (e *elasticDay) mean() float64 {
	sum := 0
	for _, w := range e.waits {
		sum += w
	}
	return float64(sum) / float64(len(e.waits))
}

func (e *elasticDay) p95() int {
	slices.Sort(e.waits)
	return e.waits[len(e.waits)*95/100]
}

// between are starts that take from one time to another.
func between(least, most time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return least + time.Duration(r.Int64N(int64(most-least))) }
}

// An elastic fleet does nearly as well as one that is as large all day as it is at its largest, for
// less than half of the price; a provider that is slow, fails or has few instances costs time and
// loses no job. Run it with -v for the table of docs/scaling.md.
func TestElasticDay(t *testing.T) {
	t.Parallel()
	jobs := dayJobs()
	busy := 0
	for _, j := range jobs {
		busy += j.takes
	}
	const peak = 12
	usual := between(40*time.Second, 80*time.Second)
	days := map[string]*elasticDay{
		"fixed, peak":   {fixed: peak},
		"fixed, mean":   {fixed: busy/(24*3600) + 1},
		"elastic":       {bounds: unbounded(0, peak), start: usual},
		"warm":          {bounds: unbounded(1, peak), start: usual},
		"quick starts":  {bounds: unbounded(0, peak), start: between(6*time.Second, 10*time.Second)},
		"slow starts":   {bounds: unbounded(0, peak), start: between(4*time.Minute, 5*time.Minute)},
		"failed starts": {bounds: unbounded(0, peak), start: usual, fails: 3},
		"only five":     {bounds: unbounded(0, peak), start: usual, gives: 5},
	}
	for _, name := range []string{"fixed, peak", "fixed, mean", "elastic", "warm", "quick starts", "slow starts", "failed starts", "only five"} {
		day := days[name]
		day.run(jobs)
		require.Len(t, day.waits, len(jobs), name)
		require.LessOrEqual(t, day.most, peak, name)
		t.Logf("%-14s %6.1f instance hours, wait %6.1f s in the mean, %4d s at p95, most %d", name, float64(day.seconds)/3600, day.mean(), day.p95(), day.most)
	}
	best, elastic := days["fixed, peak"], days["elastic"]
	require.LessOrEqual(t, float64(elastic.p95()), 1.3*float64(best.p95()))
	require.LessOrEqual(t, elastic.seconds, best.seconds/2)
	require.Less(t, elastic.mean(), days["fixed, mean"].mean()/2)
}
