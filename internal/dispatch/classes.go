package dispatch

import (
	"context"
	"maps"
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// requirements are what the waiting jobs that the loop looks at need.
type requirements struct {
	queue  *queue.Queue
	judged *judgements
	order  *order
	met    classes
}

// classes are the requirement classes that the loop has met in the queue, with their requirements.
// Those of the last look are probably the ones waiting now, so one question is enough to find jobs.
// The zero value is empty.
type classes map[string][]byte

// trim forgets all classes once most of them have no waiting jobs, given how many do. Those that do
// will be met again.
func (c *classes) trim(waiting int) {
	const spare = 16 // so that a queue that runs empty now and then forgets nothing
	if len(*c) > 2*waiting+spare {
		*c = nil
	}
}

// meet reads the requirements of classes with waiting jobs, and reports whether there were any:
// they are removed along with the last job of a class.
func (q *requirements) meet(ctx context.Context, unknown []string) (any bool, err error) {
	met, err := q.queue.Requirements(ctx, unknown)
	if err != nil {
		return false, err
	}
	if q.met == nil {
		q.met = classes{}
	}
	maps.Copy(q.met, met)
	return len(met) > 0, nil
}

// meetAll is meet for all classes with waiting jobs.
func (q *requirements) meetAll(ctx context.Context) (any bool, err error) {
	all, err := q.queue.Classes(ctx)
	if err != nil {
		return false, err
	}
	before := q.met
	q.met = all
	for class := range all {
		any = any || before[class] == nil
	}
	return any, nil
}

// unknown returns the classes of these jobs that have not been met.
func (c classes) unknown(jobs []job.Job) (unknown []string) {
	for _, j := range jobs {
		if c[j.Class] == nil && !slices.Contains(unknown, j.Class) {
			unknown = append(unknown, j.Class)
		}
	}
	return unknown
}

// look is what one look at the waiting jobs asked for.
type look struct {
	wanted queue.Wanted
	// n is the number of jobs asked for.
	n int
}

// look reads the first waiting jobs that some instances can run, at least as many as least, and
// meets the classes among them that are new. After that the instances know which classes they can
// run.
func (q *requirements) look(ctx context.Context, idle []schedule.Idle, infos []*catalog.Info, least int) (w queue.Window, l look, err error) {
	l.wanted = q.judged.able(idle, infos, q.met)
	l.n = max(windowFor(idle)+q.order.further(idle, l.wanted, len(q.met)), least)
	w, err = q.window(ctx, idle, infos, &l.wanted, 0, l.n)
	return w, l, err
}

// window reads some of the wanted waiting jobs. If there are new classes among them, it meets those
// and reads again, leaving out the ones that no instance can run.
func (q *requirements) window(ctx context.Context, idle []schedule.Idle, infos []*catalog.Info, wanted *queue.Wanted, skip, n int) (w queue.Window, err error) {
	const often = 20 // jobs must be given out even if new classes keep coming
	var unknown []string
	for round := range often {
		if w, err = q.queue.Window(ctx, *wanted, skip, n); err != nil {
			return w, err
		}
		if unknown = q.met.unknown(w.Jobs); len(unknown) == 0 {
			return w, nil
		}
		var any bool
		if round == 1 { // there may be many more
			any, err = q.meetAll(ctx)
		} else {
			any, err = q.meet(ctx, unknown)
		}
		if err != nil {
			return w, err
		}
		if !any {
			break
		}
		*wanted = q.judged.able(idle, infos, q.met)
	}
	w.Jobs = slices.DeleteFunc(w.Jobs, func(j job.Job) bool { return slices.Contains(unknown, j.Class) })
	return w, nil
}
