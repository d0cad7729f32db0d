package schedule

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
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

var update = flag.Bool("update", false, "write the table of docs/scaling.md")

// row is a day's line of the table.
func (e *elasticDay) row(fleet string) string {
	of := func(seconds float64) string {
		if seconds >= 3600 {
			return fmt.Sprintf("%.1f h", seconds/3600)
		}
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("| %s | %.0f | %s | %s |\n", fleet, float64(e.seconds)/3600, of(e.mean()), of(float64(e.p95())))
}

// An elastic fleet does nearly as well as one that is as large all day as it is at its largest, for
// less than half of the price; a provider that is slow, fails or has few instances costs time and
// loses no job. docs/scaling.md has the table, which -update writes.
func TestElasticDay(t *testing.T) {
	t.Parallel()
	jobs := dayJobs()
	busy := 0
	for _, j := range jobs {
		busy += j.takes
	}
	const peak = 12
	usual := between(40*time.Second, 80*time.Second)
	best, mean, elastic := &elasticDay{fixed: peak}, &elasticDay{fixed: busy/(24*3600) + 1}, &elasticDay{bounds: unbounded(0, peak), start: usual}
	table := "| fleet | hours paid | mean wait | p95 wait |\n| --- | --- | --- | --- |\n"
	for _, c := range []struct {
		fleet string
		day   *elasticDay
	}{
		{fmt.Sprintf("fixed, as large as at the peak (%d)", peak), best},
		{fmt.Sprintf("fixed, as large as on average (%d)", mean.fixed), mean},
		{"elastic, 0 to 12", elastic},
		{"elastic, 1 to 12", &elasticDay{bounds: unbounded(1, peak), start: usual}},
		{"elastic, starts of 6 to 10 s", &elasticDay{bounds: unbounded(0, peak), start: between(6*time.Second, 10*time.Second)}},
		{"elastic, starts of 4 to 5 min", &elasticDay{bounds: unbounded(0, peak), start: between(4*time.Minute, 5*time.Minute)}},
		{"elastic, three of ten starts fail", &elasticDay{bounds: unbounded(0, peak), start: usual, fails: 3}},
		{"elastic, the provider has five", &elasticDay{bounds: unbounded(0, peak), start: usual, gives: 5}},
	} {
		c.day.run(jobs)
		require.Len(t, c.day.waits, len(jobs), c.fleet)
		require.LessOrEqual(t, c.day.most, peak, c.fleet)
		table += c.day.row(c.fleet)
	}
	require.LessOrEqual(t, float64(elastic.p95()), 1.3*float64(best.p95()))
	require.LessOrEqual(t, elastic.seconds, best.seconds/2)
	require.Less(t, elastic.mean(), mean.mean()/2)

	const page = "../../docs/scaling.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	if *update {
		written := regexp.MustCompile(`(?m)^\| fleet \|(.*\n\|)*.*\n`).ReplaceAllLiteralString(string(text), table)
		require.NoError(t, os.WriteFile(page, []byte(written), 0o600))
		return
	}
	require.Contains(t, string(text), table, "go test ./internal/schedule -run TestElasticDay -update writes the table")
}
