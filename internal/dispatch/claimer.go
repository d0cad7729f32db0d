package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// claimer claims jobs for instances and starts their runs.
type claimer struct {
	queue        *queue.Queue
	hub          string
	instances    *Instances
	requirements *requirements
	durations    *learned.Durations
	models       *modelSets
	users        *modelUsers
	line         *waitLine
	holds        *holds
	rests        *rests
	notices      *run.Notices
	runner       *run.Runner
	observe      run.Observer
	ctx          context.Context
	log          *slog.Logger
}

// begin starts the run of a job that was claimed for it. alone says that nothing else is waiting.
func (c *claimer) begin(r *run.Run, claimed job.Job, pair schedule.Placement, alone bool) {
	models := c.models.get(c.ctx, claimed.Class)
	c.users.note(claimed.Tenant, models, time.Now())
	c.line.leave(claimed.Key)
	c.holds.forget(claimed.Key)
	idle := c.runner.Begin(r, claimed, models, alone)
	if pair.Saves {
		c.observe.Switched(pair.Instance, true)
	}
	waited := c.notices.Age(claimed)
	if !claimed.Ahead {
		c.observe.Dispatched(pair.Instance, waited, min(waited, idle))
	}
	c.log.Info("job goes to an instance", "job", claimed.Key, "prompt", claimed.ID, "instance", pair.Instance, "why", pair.Why,
		"attempt", claimed.Attempts, "waited_ms", waited.Milliseconds(), "ahead", claimed.Ahead)
}
