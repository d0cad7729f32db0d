package dispatch

import (
	"context"
	"maps"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// classes are the requirement classes that the loop has met in the queue, with their
// requirements. Those of the last look are probably the ones that wait now, so that one
// question is enough to find jobs. The zero value is empty.
type classes map[string][]byte

// trim forgets all classes once most of them have no waiting jobs any more, given how
// many have. Those that have are met again.
func (c *classes) trim(waiting int) {
	const spare = 16 // so that a queue that is empty now and then forgets nothing
	if len(*c) > 2*waiting+spare {
		*c = nil
	}
}

// meet reads the requirements of classes that have waiting jobs, and reports whether
// there were any: they are removed with the last job of a class.
func (d *Dispatcher) meet(ctx context.Context, unknown []string) (any bool, err error) {
	met, err := d.queue.Requirements(ctx, unknown)
	if err != nil {
		return false, err
	}
	if d.classes == nil {
		d.classes = classes{}
	}
	maps.Copy(d.classes, met)
	return len(met) > 0, nil
}

// look is what was asked for in a look at the waiting jobs.
type look struct {
	wanted queue.Wanted
	// others are the classes that no instance can run.
	others []string
	// n is how many jobs were asked for.
	n int
}

// look reads the first waiting jobs that some instances can run, at least so many, and
// meets the classes that are new among them. The instances know then which classes they
// can run.
func (d *Dispatcher) look(ctx context.Context, idle []Idle, infos []*catalog.Info, least int) (w queue.Window, l look, err error) {
	l.wanted, l.others = d.sorted(idle, infos)
	l.n = max(windowFor(idle)+d.further(idle, l.wanted), least)
	w, err = d.queue.WindowOf(ctx, l.wanted, 0, l.n, l.others...)
	const often = 20 // where new classes come all the time, jobs must be given out, too
	for round := 0; err == nil && len(w.Unknown) > 0 && round < often; round++ {
		var any bool
		if any, err = d.meet(ctx, w.Unknown); err != nil || !any {
			break
		}
		l.wanted, l.others = d.sorted(idle, infos)
		w, err = d.queue.WindowOf(ctx, l.wanted, 0, l.n, l.others...)
	}
	return w, l, err
}

// sorted fills in which of the known classes each idle instance can run. It returns
// the jobs that any of them can run, and the other classes.
func (d *Dispatcher) sorted(idle []Idle, infos []*catalog.Info) (wanted queue.Wanted, others []string) {
	wanted = d.judged.able(idle, infos, d.classes)
	can := make(map[string]bool, len(wanted.Classes))
	for _, class := range wanted.Classes {
		can[class] = true
	}
	for _, own := range wanted.Own {
		for _, class := range own.Classes {
			can[class] = true
		}
	}
	for class := range d.classes {
		if !can[class] {
			others = append(others, class)
		}
	}
	return wanted, others
}
