package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// claimer claims jobs for instances and starts their runs.
type claimer struct {
	queue        *queue.Queue
	hub          string
	instances    *Instances
	requirements *requirements
	durations    *durations
	models       *modelSets
	users        *modelUsers
	line         *waitLine
	holds        *holds
	rests        *rests
	notices      *Notices
	runs         *Runs
	runner       *runner
	observe      Observer
	signal       *signal
	ctx          context.Context
	work         *panics.Group
	log          *slog.Logger
}

// begin starts the run of a job that was claimed for it.
func (c *claimer) begin(r *run, claimed job.Job, pair schedule.Placement) {
	r.take(claimed)
	r.mark = claimed.Fence
	r.log = r.log.With("instance", r.conn.Name)
	r.conn.Show(r.holder())
	if r.models = c.models.get(c.ctx, claimed.Class); !claimed.Ahead { // otherwise see begun
		r.load()
	}
	c.users.note(claimed.Tenant, r.models, time.Now())
	c.line.leave(claimed.Key)
	c.holds.forget(claimed.Key)
	c.runner.launch(r, preparation{r}.execute)
	if pair.Saves {
		c.observe.Switched(r.conn.Name, true)
	}
	waited := c.notices.age(claimed)
	if !claimed.Ahead {
		c.observe.Dispatched(r.conn.Name, waited, min(waited, r.conn.IdleFor()))
	}
	c.log.Info("job goes to an instance", "job", claimed.Key, "prompt", claimed.ID, "instance", r.conn.Name, "why", pair.Why,
		"attempt", claimed.Attempts, "waited_ms", waited.Milliseconds(), "ahead", claimed.Ahead)
}

// claimAgain asks again after a claim whose reply was lost, so that nobody knows whether it went
// through. The same request returns the same run. Otherwise the job would be nobody's until its
// lease ends. The instance, if the run has one, is kept meanwhile. begin starts the run.
func (c *claimer) claimAgain(r *run, request queue.ClaimRequest, begin func(claimed job.Job)) {
	c.runs.doubt(request.Upstream, true)
	c.work.Go(r.log, "claiming a job again", func() {
		var claimed job.Job
		err := r.retry(c.ctx, "claim", func(ctx context.Context) (err error) {
			claimed, err = c.queue.Claim(ctx, request)
			return err
		})
		if err == nil {
			begin(claimed)
		} else {
			if r.conn != nil {
				r.conn.Detach(r.holder())
			}
			c.signal.Wake()
		}
		c.runs.doubt(request.Upstream, false)
	})
}
