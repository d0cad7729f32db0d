package dispatch

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// give claims a job for an instance and starts its run.
func (p pass) give(ctx context.Context, pair schedule.Placement) error {
	d, key := p.d, pair.Job.Key
	if p.capped[pair.Job.Tenant] {
		p.passed[key] = true
		return nil
	}
	conn := d.connection(pair.Instance)
	if conn == nil {
		p.passed[pair.Instance] = true
		return nil
	}
	r := newRun(d, conn, pair.Job)
	attach := conn.attach
	if p.ahead {
		attach, r.needs = conn.attachAhead, d.classes[pair.Job.Class]
	}
	if !attach(r) {
		p.passed[pair.Instance] = true
		return nil
	}
	request := queue.ClaimRequest{
		Key: key, Tenant: pair.Job.Tenant, Instance: conn.name, Hub: d.Hub, Upstream: conn.upstreamID(pair.Job), SID: conn.clientID(),
		Ahead: p.ahead, After: conn.after(), Cost: d.costOf(pair.Job.Shape, conn.name), Why: pair.Why,
	}
	claimed, left, err := d.queue.ClaimCounting(ctx, request)
	switch {
	case err == nil:
		*p.left, r.alone = left, left == 0
		d.begin(r, claimed, pair.Why)
		return nil
	case errors.Is(err, queue.ErrUnavailable):
		d.claimAgain(r, request, pair.Why)
		return err
	}
	conn.detach(r)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, queue.ErrTaken):
		p.passed[pair.Instance] = true
	case errors.Is(err, queue.ErrCapped): // the next look leaves it out
		p.capped[pair.Job.Tenant], p.passed[key] = true, true
	case errors.Is(err, queue.ErrNotQueued), errors.Is(err, queue.ErrNotFound):
		p.passed[key] = true
	default: // something is wrong with this one; the others go on
		d.log.Error("cannot claim a job", "job", key, "error", err)
		p.passed[key] = true
		d.notHere(key)
	}
	return nil
}

// begin starts the run of a job that was claimed for it.
func (d *Dispatcher) begin(r *run, claimed job.Job, why string) {
	r.take(claimed)
	r.mark = claimed.Fence
	r.log = r.log.With("instance", r.conn.name)
	r.conn.show(r)
	if r.models = d.modelsOf(d.ctx, claimed.Class); !claimed.Ahead { // otherwise see begun
		r.load()
	}
	d.line.leave(claimed.Key)
	d.holds.forget(claimed.Key)
	d.launch(r, r.execute)
	waited := d.age(claimed)
	if !claimed.Ahead {
		d.Observe.Dispatched(r.conn.name, waited, min(waited, r.conn.idleFor()))
	}
	d.log.Info("job goes to an instance", "job", claimed.Key, "instance", r.conn.name, "why", why,
		"attempt", claimed.Attempts, "waited_ms", waited.Milliseconds(), "ahead", claimed.Ahead)
}

// claimAgain asks again after a claim whose reply was lost, so that nobody knows whether it went
// through. The same request returns the same run. Otherwise the job would be nobody's until its
// lease ends. The instance is kept meanwhile.
func (d *Dispatcher) claimAgain(r *run, request queue.ClaimRequest, why string) {
	d.mu.Lock()
	d.doubtful[request.Upstream] = true
	d.mu.Unlock()
	d.work.Go(r.log, "claiming a job again", func() {
		var claimed job.Job
		err := r.retry(d.ctx, "claim", func(ctx context.Context) (err error) {
			claimed, err = d.queue.Claim(ctx, request)
			return err
		})
		if err == nil {
			d.begin(r, claimed, why)
		} else {
			r.conn.detach(r)
			d.Wake()
		}
		d.mu.Lock()
		delete(d.doubtful, request.Upstream)
		d.mu.Unlock()
	})
}

// claims reports whether this hub is still asking for a run. It gets the run with the answer, and
// must not take it over from itself.
func (d *Dispatcher) claims(held job.Run) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.doubtful[held.Upstream]
}
