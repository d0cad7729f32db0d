package dispatch

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// maxBehind bounds the extra jobs that are read to find short ones among them.
const maxBehind = 64

// takes returns how long jobs count as running on the first of some instances, by job key.
func (d *Dispatcher) takes(jobs []job.Job, idle []schedule.Idle) map[string]time.Duration {
	if d.settings().ShortFirst <= 0 || len(idle) == 0 {
		return nil
	}
	return schedule.Takes(jobs, d.runTimes(idle))
}

// runTimes returns a function that tells how long jobs of a shape run on the first of some
// instances.
func (d *Dispatcher) runTimes(idle []schedule.Idle) func(shape string) time.Duration {
	gpu, known := d.gpuOf(idle[0].Name), map[string]time.Duration{}
	return func(shape string) time.Duration {
		ran, ok := known[shape]
		if !ok {
			ran = d.estimate(shape, gpu).Ran
			known[shape] = ran
		}
		return ran
	}
}

// shortBehind returns how many of the waiting jobs to read to include the short ones behind long
// ones, as far as this hub knows the line.
func (d *Dispatcher) shortBehind(idle []schedule.Idle) int {
	if d.settings().ShortFirst <= 0 || len(idle) == 0 {
		return 0
	}
	return schedule.ShortBehind(d.line.shapes(len(idle)+maxBehind), d.runTimes(idle))
}
