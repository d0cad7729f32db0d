package dispatch

import (
	"context"
	"log/slog"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// runner starts runs. It has what they work with.
type runner struct {
	outside
	places
	experience
	register
	signal *signal
	ctx    context.Context
	work   *panics.Group
	log    *slog.Logger
}

// outside is what runs reach beyond the dispatcher, and whom they tell.
type outside struct {
	queue    *queue.Queue
	streams  *stream.Streams
	fleet    *fleet.Registry
	files    *files.Transfer
	settings func() Settings
	observe  Observer
	shown    func(tenant, instance string, output []byte)
	faulted  func(j job.Job, instance, reason string, lost bool)
	traces   func() *traces.Tracer
}

// places are where jobs can run.
type places struct {
	reports   *instance.Reports
	instances *Instances
	otherHubs *otherHubs
	openings  *Openings
	discovery *instance.Discovery
}

// experience is what runs teach.
type experience struct {
	blame     *Blame
	rests     *rests
	memory    *memory
	durations *durations
}

// register has the runs of this hub, and what their clients are told.
type register struct {
	runs     *Runs
	doors    *Doors
	notices  *Notices
	affinity *Affinity
}

// launch registers a run and starts it.
func (rn *runner) launch(r *run, steps func(context.Context) result) {
	j := r.Job()
	rn.runs.add(r)
	if r.conn != nil {
		rn.affinity.note(j.Tenant, j.Client, r.conn.Name)
	}
	rn.work.Go(r.log, "ending a run", func() {
		v := r.perform(rn.ctx, steps)
		rn.runs.remove(r)
		r.free()
		if v == jobEnded {
			rn.memory.forget(j.Key)
		}
		if v != rejected { // otherwise no count that anybody has seen has changed
			rn.streams.Statuses.Changed(j.Caller)
		}
	})
}

// target returns a link's instance in the form that package files uses.
func (rn *runner) target(conn *instance.Link) files.Target {
	i, _ := rn.fleet.Instance(conn.Name)
	return files.Target{Name: conn.Name, Boot: i.BootID(), Instance: conn.Client}
}
