package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// pass is one look over queue and fleet that gives jobs to idle instances.
type pass struct {
	d *Dispatcher
	// passed are instances and jobs that were tried in vain: another hub has the
	// instance, or the job cannot be claimed. They have their turn in the next pass.
	passed map[string]bool
}

// pass gives jobs to idle instances until there is nothing left to give. next is
// when a job that must not run yet may, from now; zero if that cannot be said.
func (d *Dispatcher) pass(ctx context.Context) (next time.Duration, err error) {
	p := pass{d: d, passed: map[string]bool{}}
	for {
		idle, infos := p.idle()
		if len(idle) == 0 {
			return 0, nil
		}
		news := d.news.Load()
		if d.nothing > 0 && d.nothing == news {
			return 0, nil // only an instance was freed since
		}
		d.nothing = 0
		classes, err := d.queue.Classes(ctx)
		if err != nil {
			return 0, err
		}
		if len(classes) == 0 {
			d.nothing = news
			return 0, nil
		}
		wanted := able(idle, infos, classes)
		if len(wanted) == 0 {
			return 0, nil
		}
		tried, next, err := p.fill(ctx, wanted, idle)
		if err != nil || !tried {
			return next, err
		}
	}
}

// idle lists the instances that could take a job now, without those that were
// tried in vain.
func (p pass) idle() (idle []Idle, infos []*catalog.Info) {
	all, allInfos := p.d.idle()
	for n, i := range all {
		if p.passed[i.Name] {
			continue
		}
		for key := range p.passed {
			i.Refused[key] = true
		}
		idle, infos = append(idle, i), append(infos, allInfos[n])
	}
	return idle, infos
}

// fill reads the waiting jobs, best first, until one of them fits an idle instance,
// and gives out what fits. A job that fits nowhere hides none behind it.
func (p pass) fill(ctx context.Context, wanted []string, idle []Idle) (tried bool, next time.Duration, err error) {
	for skip, n := 0, windowFor(idle); ; skip, n = skip+n, 4*n {
		w, err := p.d.queue.Window(ctx, wanted, skip, n)
		if err != nil {
			return false, 0, err
		}
		if w.Next > 0 && (next == 0 || w.Next < next) {
			next = w.Next
		}
		pairs := Pick(w.Jobs, idle)
		if len(pairs) == 0 && w.More && !retry.Sleep(ctx, time.Duration(n)*readPause) {
			return false, 0, ctx.Err()
		}
		for _, pair := range pairs {
			if err := p.give(ctx, pair); err != nil {
				return false, 0, err
			}
		}
		if len(pairs) > 0 || !w.More {
			return len(pairs) > 0, next, nil
		}
	}
}

// readPause is the pause for each waiting job that was read in vain. There are many
// of them only while something is wrong, and Redis has other work then.
const readPause = 50 * time.Microsecond

// windowFor returns how many jobs to look at first: one for each instance, and as
// many as they have refused.
func windowFor(idle []Idle) int {
	const enough = 100
	n := 0
	for _, i := range idle {
		n += len(i.Refused)
	}
	return len(idle) + min(n, enough)
}

// able fills in which classes each idle instance can run and returns all of
// them together.
func able(idle []Idle, infos []*catalog.Info, classes map[string][]byte) (wanted []string) {
	for n := range idle {
		idle[n].Classes = map[string]bool{}
	}
	for class, encoded := range classes {
		needs, err := catalog.DecodeRequirements(encoded)
		if err != nil {
			continue // a newer hub's; it will run them
		}
		any := false
		for n, info := range infos {
			if len(info.Satisfies(needs)) == 0 {
				idle[n].Classes[class] = true
				any = true
			}
		}
		if any {
			wanted = append(wanted, class)
		}
	}
	return wanted
}

// paused is why no job may be given out now, or nil. What runs goes on.
func (d *Dispatcher) paused() error {
	if d.Paused == nil {
		return nil
	}
	return d.Paused()
}

// idle lists the instances that could take a job now.
func (d *Dispatcher) idle() ([]Idle, []*catalog.Info) {
	var (
		idle  []Idle
		infos []*catalog.Info
		needy = d.memory.needy()
	)
	if d.paused() != nil {
		return nil, nil
	}
	for _, instance := range d.Fleet.Instances() {
		conn := d.connection(instance.Name)
		if conn == nil || !conn.usable(instance) {
			continue
		}
		if i, info, ok := conn.idle(); ok {
			d.refused.add(i.Refused)
			d.avoidSmall(needy, instance, i.Refused)
			idle, infos = append(idle, i), append(infos, info)
		}
	}
	return idle, infos
}

// isIdle reports whether an instance can take a job now.
func (d *Dispatcher) isIdle(conn *connection) bool {
	i, known := d.Fleet.Instance(conn.name)
	if !known || !conn.usable(i) {
		return false
	}
	_, _, ok := conn.idle()
	return ok
}
