package dispatch

import (
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// beginTrace begins the spans of the run, if its prompt is traced. Only the body shows that, so
// they are backdated to when the run was taken.
func (r *run) beginTrace() {
	if r.body.Trace == "" || r.trace != nil {
		return
	}
	tracer := r.d.traces()
	if tracer == nil {
		return
	}
	j := r.Job()
	start := traces.Start{
		Parent: r.body.Trace, Key: j.Key, At: r.takenAt, Instance: j.Run.Instance, Attempt: j.Attempts, Adopted: string(r.adopted),
	}
	if j.Attempts == 1 && j.Excuses == 0 && !j.Preempted && r.adopted == "" {
		start.Accepted = r.d.queue.Clock().When(j.CreatedAt)
	}
	if needs, err := catalog.DecodeRequirements(r.body.Requires); err == nil {
		start.Classes = len(needs.Classes)
	}
	if r.trace = tracer.Begin(start); r.adopted == "" {
		r.trace.Enter(traces.Claim, r.takenAt)
	}
}
