package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// unrunnable is a class for which all tenants, or some, find no instance. The wait starts over when
// the set of those who find one changes.
type unrunnable struct{ class, able string }

const (
	// maxExplained bounds the classes for which expire says anew why nobody can run them.
	maxExplained = 100
	// unfitEvery is how often jobs that were accepted unchecked are looked at.
	unfitEvery = 10 * time.Second
)

// expire ends jobs that have waited too long for an instance that could run
// them. It goes with the safety tick: nobody is in a hurry here.
func (d *Dispatcher) expire(ctx context.Context) {
	classes, err := d.queue.Classes(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	stuck, lacking, unfit := map[unrunnable]time.Time{}, map[string]string{}, map[string]time.Time{}
	var fresh []string
	explained := 0
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
		if len(able.tenants) == 0 {
			reason, known := d.lacking[class]
			if explained++; !known || explained <= maxExplained {
				reason = d.Explain(needs, job.DefaultTenant)
			}
			lacking[class] = reason
		}
		since, known := d.unrunnable[u]
		if !known {
			since, fresh = now, append(fresh, class)
		}
		stuck[u] = since
		if needs.Unchecked && d.Unfit != nil {
			unfit[class] = d.unfit[class]
			if now.Sub(unfit[class]) >= unfitEvery {
				d.endUnfit(ctx, class)
				unfit[class] = now
			}
		}
		if now.Sub(since) >= d.settings().UnrunnableTimeout {
			d.giveUp(ctx, class, needs, able)
		}
	}
	d.mu.Lock()
	d.unrunnable, d.lacking, d.unfit = stuck, lacking, unfit
	d.mu.Unlock()
	d.sayUnrunnable(ctx, fresh, lacking)
}

// sayUnrunnable logs that jobs of classes wait which no present instance can run: one line, with
// one of them.
func (d *Dispatcher) sayUnrunnable(ctx context.Context, fresh []string, lacking map[string]string) {
	for _, class := range fresh {
		reason, known := lacking[class]
		if !known {
			continue // some tenants find an instance
		}
		jobs, err := d.queue.Peek(ctx, []string{class}, 1)
		if err != nil || len(jobs) == 0 {
			continue
		}
		d.log.Warn("a job waits that no present instance can run", "job", jobs[0].Key, "prompt", jobs[0].ID, "reason", reason, "kinds", len(fresh))
		return
	}
}

// Lacks says why no present instance can run the jobs of a class, as far as it was looked for;
// empty if one can.
func (d *Dispatcher) Lacks(class string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lacking[class]
}

// endUnfit ends waiting jobs of a class that were accepted unchecked and turn out to be wrong.
func (d *Dispatcher) endUnfit(ctx context.Context, class string) {
	const most = 100
	jobs, err := d.queue.Peek(ctx, []string{class}, most)
	if err != nil {
		return
	}
	for _, j := range jobs {
		body, err := d.queue.Body(ctx, j.Key)
		if err != nil {
			continue // it is tried again
		}
		if refused := d.Unfit(ctx, j, body); refused != nil {
			why := refusalError(refused)
			d.endWaiting(ctx, j, body, why, why.message)
		}
	}
}

// unable returns the classes for which not every tenant finds a connected instance, with the
// tenants that do.
func (d *Dispatcher) unable(classes map[string][]byte) map[string]owners {
	conns := d.connected()
	infos := make([]*catalog.Info, 0, len(conns))
	reserved := map[*catalog.Info][]string{} // by description, for all instances that share it
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

// giveUp fails the waiting jobs of a class that were accepted long enough ago, except those of
// tenants that find an instance.
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
		d.endWaiting(ctx, j, body, hubError{
			kind:    "RuntimeError",
			message: fmt.Sprintf("No instance could run this prompt within %s: %s", d.settings().UnrunnableTimeout, reason),
		}, reason)
	}
}

// endWaiting ends a job that nobody can run with an error.
func (d *Dispatcher) endWaiting(ctx context.Context, j job.Job, body job.Body, why hubError, reason string) {
	end := errorEnding(j, body, why, time.Now())
	if err := d.queue.FailWaiting(ctx, j.Key, end.outcome(reason)); err != nil {
		if !errors.Is(err, queue.ErrNotQueued) {
			d.log.Warn("cannot end a job that nobody can run", "job", j.Key, "error", err)
		}
		return
	}
	d.announce(j, end.frames()...)
	d.Traces().Failed(traces.Start{Parent: body.Trace, Key: j.Key, Accepted: d.queue.Clock().When(j.CreatedAt), At: time.Now()})
}
