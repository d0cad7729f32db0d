package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// unrunnable is a class of which some tenants' jobs, or all, find no instance. A change of
// those who find one starts the wait over.
type unrunnable struct{ class, able string }

// expire ends jobs that have waited too long for an instance that could run
// them. It goes with the safety tick: nobody is in a hurry here.
func (d *Dispatcher) expire(ctx context.Context) {
	classes, err := d.queue.Classes(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	stuck := map[unrunnable]time.Time{}
	for class, able := range d.unable(classes) {
		needs, err := catalog.DecodeRequirements(classes[class])
		if err != nil {
			continue
		}
		there := d.ownersElsewhere(needs)
		if there.all {
			continue
		}
		able.tenants = append(able.tenants, there.tenants...)
		u := unrunnable{class, able.name()}
		since, known := d.unrunnable[u]
		if !known {
			since = now
		}
		stuck[u] = since
		if now.Sub(since) >= d.settings().UnrunnableTimeout {
			d.giveUp(ctx, class, needs, able)
		}
	}
	d.unrunnable = stuck
}

// unable returns the classes that not every tenant finds a connected instance for, with
// those who do.
func (d *Dispatcher) unable(classes map[string][]byte) map[string]owners {
	conns := d.connected()
	infos := make([]*catalog.Info, 0, len(conns))
	reserved := map[*catalog.Info][]string{} // of one description, for all together
	for _, conn := range conns {
		info, tenants := conn.abilities(), d.reservedFor(conn.name)
		switch {
		case tenants == nil:
			infos = append(infos, info)
		case info != nil:
			reserved[info] = append(reserved[info], tenants...)
		}
	}
	left := d.judged.none(infos, classes)
	able := make(map[string]owners, len(left))
	for class := range left {
		able[class] = owners{}
	}
	for info, tenants := range reserved {
		for class := range d.judged.can(info, left) {
			o := able[class]
			o.add(tenants)
			able[class] = o
		}
	}
	return able
}

// giveUp fails the waiting jobs of a class that were accepted long enough ago, except
// those of tenants who find an instance.
func (d *Dispatcher) giveUp(ctx context.Context, class string, needs catalog.Requirements, able owners) {
	const most, behindOthers = 100, 1000
	n := most
	if len(able.tenants) > 0 {
		n = behindOthers
	}
	jobs, err := d.queue.Peek(ctx, []string{class}, n)
	if err != nil {
		return
	}
	for _, j := range jobs {
		if able.has(j.Tenant) || d.age(j) < d.settings().UnrunnableTimeout {
			continue
		}
		reason := d.Explain(needs, j.Tenant)
		body, err := d.queue.Body(ctx, j.Key)
		if errors.Is(err, queue.ErrUnavailable) {
			return
		}
		// What cannot be read for good is no reason to let the job wait for ever.
		end := errorEnding(j, body, hubError{
			kind:    "RuntimeError",
			message: fmt.Sprintf("No instance could run this prompt within %s: %s", d.settings().UnrunnableTimeout, reason),
		}, time.Now())
		err = d.queue.FailWaiting(ctx, j.Key, end.outcome(reason))
		if err != nil {
			if !errors.Is(err, queue.ErrNotQueued) {
				d.log.Warn("cannot end a job that nobody can run", "job", j.Key, "error", err)
			}
			continue
		}
		d.announce(j, end.frames()...)
		d.Traces().Failed(traces.Start{Parent: body.Trace, Key: j.Key, Accepted: d.queue.Clock().When(j.CreatedAt), At: time.Now()})
	}
}
