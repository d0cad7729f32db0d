package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// order says which of the waiting jobs may go before which.
type order struct {
	settings  func() Settings
	durations *learned.Durations
	reports   *instance.Reports
	line      *waitLine
	models    *modelSets
	holds     *holds
	// overtaken are the jobs that were passed over for others whose models were loaded.
	overtaken schedule.Overtaken
}

// maxBehind bounds the extra jobs that are read to find short ones among them.
const maxBehind = 64

// takes returns how long jobs count as running on the first of some instances, by job key.
func (o *order) takes(jobs []job.Job, idle []schedule.Idle) map[string]time.Duration {
	if o.settings().ShortFirst <= 0 || len(idle) == 0 {
		return nil
	}
	return schedule.Takes(jobs, o.runTimes(idle))
}

// runTimes returns a function that tells how long jobs of a shape run on the first of some
// instances.
func (o *order) runTimes(idle []schedule.Idle) func(shape string) time.Duration {
	gpu, known := o.reports.Gpu(idle[0].Name), map[string]time.Duration{}
	return func(shape string) time.Duration {
		ran, ok := known[shape]
		if !ok {
			ran = o.durations.Estimate(shape, gpu).Ran
			known[shape] = ran
		}
		return ran
	}
}

// shortBehind returns how many of the waiting jobs to read to include the short ones behind long
// ones, as far as this hub knows the line.
func (o *order) shortBehind(idle []schedule.Idle) int {
	if o.settings().ShortFirst <= 0 || len(idle) == 0 {
		return 0
	}
	return schedule.ShortBehind(o.line.shapes(len(idle)+maxBehind), o.runTimes(idle))
}

// ends returns how long a job runs on an instance, and how long it takes to load its models there;
// 0 and 0 if unknown.
func (o *order) ends(j job.Job, instance string) (ran, load time.Duration) {
	e := o.durations.Estimate(j.Shape, o.reports.Gpu(instance))
	if !e.Certain() {
		return 0, 0
	}
	return e.Ran, e.Load
}

// warmth returns which of the waiting jobs may overtake which.
func (o *order) warmth(ctx context.Context, jobs []job.Job, idle []schedule.Idle, now time.Time) schedule.Warmth {
	w := schedule.Warmth{Models: map[string][]string{}, Takes: o.takes(jobs, idle)}
	w.Late = o.overtaken.Late(jobs, w.Takes, o.settings().ShortFirst, now)
	for _, j := range jobs {
		if _, met := w.Models[j.Class]; !met {
			w.Models[j.Class] = o.models.get(ctx, j.Class)
		}
	}
	if bound := o.settings().Overtaking; bound > 0 {
		w.Overtaking, w.Due = true, o.overtaken.Due(jobs, bound, now)
		w.Ends, w.Waited = o.ends, o.holds.over(jobs, now)
	}
	return w
}

// lookBehind is how many extra jobs are read when one further back may overtake.
const lookBehind = 16

// further returns how many extra jobs to read: one further back may take less time or, if several
// classes have jobs waiting, need exactly what an instance has loaded. met is how many classes are known.
func (o *order) further(idle []schedule.Idle, wanted queue.Wanted, met int) int {
	short := max(o.shortBehind(idle)-len(idle), 0)
	classes := met - len(wanted.But)
	for _, own := range wanted.Own {
		classes += len(own.Classes)
	}
	if classes < 2 || o.settings().Overtaking <= 0 ||
		!slices.ContainsFunc(idle, func(i schedule.Idle) bool { return len(i.Loaded) > 0 }) {
		return short
	}
	return max(short, lookBehind)
}
