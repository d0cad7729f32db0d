package run

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// Around is what runs work with.
type Around struct {
	Queue    *queue.Queue
	Streams  *stream.Streams
	Fleet    *fleet.Registry
	Files    *files.Transfer
	Settings func() Settings
	Observe  Observer
	// Shown is passed each output of a job as the instance wrote it. May be nil.
	Shown func(tenant, instance string, output []byte)
	// Faulted is told of lost runs and failed jobs, each with the reason. May be nil.
	Faulted func(j job.Job, instance, reason string, lost bool)
	// Traces returns the current tracer of jobs, nil for none.
	Traces func() *traces.Tracer
	// Given is told which instance a job has gone to.
	Given func(j job.Job, instance string)

	Reports   *instance.Reports
	Links     *instance.Links
	Discovery *instance.Discovery
	Elsewhere Elsewhere

	// Health, Rests, Memory and Durations learn from the runs.
	Health    *Health
	Rests     Rests
	Memory    *Memory
	Durations *learned.Durations

	Runs    *Runs
	Doors   *Doors
	Notices *Notices
	Signal  Signal
	// Ctx ends when the runs are to be left to other hubs, and Work has their goroutines.
	Ctx    context.Context
	Work   *panics.Group
	Logger *slog.Logger
}

// Runner starts runs.
type Runner struct{ Around }

// NewRunner returns a runner that has started none.
func NewRunner(around Around) *Runner { return &Runner{around} }

// Begin starts the run of a job that was claimed for it. models are those that its graph loads; alone
// says that nothing else is waiting. It returns how long the instance has been idle.
func (rn *Runner) Begin(r *Run, claimed job.Job, models []string, alone bool) (idle time.Duration) {
	r.take(claimed)
	r.mark, r.alone, r.models = claimed.Fence, alone, models
	r.log = r.log.With("instance", r.conn.Name)
	r.conn.Show(r.Holder())
	if !claimed.Ahead { // otherwise see begun
		r.load()
	}
	idle = r.conn.IdleFor() // before the run may move to another connection
	rn.launch(r, preparation{r}.execute)
	return idle
}

// Adopt follows a run that somebody else began. A run that is still going on is followed to its end,
// one that has ended is collected, and only a job whose run is really lost runs again.
func (rn *Runner) Adopt(o queue.Orphan, j job.Job, from Origin) {
	j.Run, j.Fence = o.Run, o.Fence
	r := rn.New(nil, j)
	r.log, r.adopted = r.log.With("instance", o.Instance), from
	if o.CancelAsked {
		r.wish = cancelled
		r.parting.unwant()
	}
	rn.launch(r, func(ctx context.Context) result { return adopting{r}.takeOver(ctx, o) })
}

// ClaimAgain asks again after a claim whose reply was lost, so that nobody knows whether it went
// through. The same request returns the same run. Otherwise the job would be nobody's until its
// lease ends. The instance, if the run has one, is kept meanwhile. begin starts the run.
func (rn *Runner) ClaimAgain(r *Run, request queue.ClaimRequest, begin func(claimed job.Job)) {
	rn.Runs.doubt(request.Upstream, true)
	rn.Work.Go(r.log, "claiming a job again", func() {
		var claimed job.Job
		err := r.retry(rn.Ctx, "claim", func(ctx context.Context) (err error) {
			claimed, err = rn.Queue.Claim(ctx, request)
			return err
		})
		if err == nil {
			begin(claimed)
		} else {
			r.Detach()
			rn.Signal.Wake()
		}
		rn.Runs.doubt(request.Upstream, false)
	})
}

// launch registers a run and starts it.
func (rn *Runner) launch(r *Run, steps func(context.Context) result) {
	j := r.Job()
	rn.Runs.add(r)
	if r.conn != nil {
		rn.Given(j, r.conn.Name)
	}
	rn.Work.Go(r.log, "ending a run", func() {
		v := r.perform(rn.Ctx, steps)
		rn.Runs.remove(r)
		r.Detach()
		if v == jobEnded {
			rn.Memory.forget(j.Key)
		}
		if v != rejected { // otherwise no count that anybody has seen has changed
			rn.Streams.Statuses.Changed(j.Caller)
		}
	})
}

// target returns a link's instance in the form that package files uses.
func (rn *Runner) target(conn *instance.Link) files.Target {
	i, _ := rn.Fleet.Instance(conn.Name)
	return files.Target{Name: conn.Name, Boot: i.BootID(), Instance: conn.Client}
}
