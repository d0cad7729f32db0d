package run

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// execute runs a claimed job: it reads the body, posts the prompt once its inputs are there,
// watches the instance run it, and collects the results.
func (r preparation) execute(ctx context.Context) result {
	key := r.Job().Key
	body, err := r.d.Queue.Body(ctx, key)
	r.takeBody(body) // even the part that could be read: the history shows it
	if err != nil {
		return r.unreadable(ctx, err)
	}
	if r.wish != wanted {
		return r.cancelledEnd()
	}
	if res := r.tooSmall(); res.kind != undecided {
		return res
	}
	if res := dividing(r).divide(ctx); res.kind != undecided {
		return res
	}
	err = posting(r).submit(ctx)
	var refused refusal
	switch {
	case err == nil:
		return following(r).follow(ctx)
	case errors.As(err, &refused):
		return posting(r).refused(ctx, refused)
	case ctx.Err() != nil:
		return result{kind: dropped} // the hub is stopping; the lease ends and the job goes elsewhere
	}
	return posting(r).notTaken(err)
}

// maxUnsealed is how often a hub tries to decrypt the API keys of a job. In between, another hub,
// whose keys may differ, can try.
const maxUnsealed = 3

// unreadable is the result of a run whose body cannot be read.
func (r preparation) unreadable(ctx context.Context, err error) result {
	reason := "its body cannot be read: " + err.Error()
	switch {
	case ctx.Err() != nil:
		return result{kind: dropped}
	case errors.Is(err, queue.ErrUnavailable):
		return r.queueAway(err)
	case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrCorrupt):
		return result{kind: hopeless, reason: reason}
	case errors.Is(err, queue.ErrSecrets):
		if r.d.Rests.NotHere(r.Job().Key) >= maxUnsealed-1 {
			return result{kind: hopeless, reason: reason}
		}
		return result{kind: excused, reason: reason}
	}
	return result{kind: excused, reason: reason, anywhere: true}
}

// takeBody notes what is to run. A hub that knew no classes when it accepted the prompt did not
// know its output nodes; the graph still tells those whose results are only in messages.
func (r preparation) takeBody(body job.Body) {
	r.body, r.results = body, body.Outputs
	if len(body.Outputs) == 0 {
		r.results = comfyui.SocketNodes(body.Prompt)
	}
	r.mail.setResults(r.results)
	r.beginTrace()
}

// tooSmall gives the job back if graphs like it have run out of memory on instances of this size
// and a larger one can run it.
func (r preparation) tooSmall() result {
	if r.Job().Excuses >= freeExcuses {
		return result{}
	}
	had := r.d.Memory.of(r.body.Prompt)
	if had == 0 || r.d.Reports.Memory(r.conn) > had {
		return r.crowdedOut()
	}
	larger := r.d.Memory.larger(r.Run, had)
	if len(larger) == 0 {
		return result{}
	}
	r.d.Memory.avoid(r.Job().Key, need{had, larger})
	return result{kind: excused, cause: OutOfMemory, reason: "prompts like it have run out of memory there"}
}

// crowdedOut gives the job back if other programs hold so much of the GPU's memory that the rest is
// too little, going by what such runs have taken, and an instance with enough can run it. If there
// is none, the job runs anyway: ComfyUI gets along with little memory, if slowly.
func (r preparation) crowdedOut() result {
	i, known := r.d.Fleet.Instance(r.conn.Name)
	if !known || i.Report.OthersMemory == 0 {
		return result{}
	}
	left, takes := i.Report.Memory(), r.d.Durations.Need(r.Job().Shape, r.d.Reports.Gpu(i.Name))
	if takes <= left {
		return result{}
	}
	larger := r.d.Memory.larger(r.Run, takes-1)
	if len(larger) == 0 {
		return result{}
	}
	r.d.Memory.avoid(r.Job().Key, need{left, larger})
	return result{kind: excused, cause: OutOfMemory, reason: "other programs hold too much of its GPU's memory"}
}

// beginTrace begins the spans of the run, if its prompt is traced. Only the body shows that, so
// they are backdated to when the run was taken.
func (r preparation) beginTrace() {
	if r.body.Trace == "" || r.trace != nil {
		return
	}
	tracer := r.d.Traces()
	if tracer == nil {
		return
	}
	j := r.Job()
	start := traces.Start{
		Parent: r.body.Trace, Key: j.Key, At: r.takenAt, Instance: j.Run.Instance, Attempt: j.Attempts, Adopted: string(r.adopted),
	}
	if j.Attempts == 1 && j.Excuses == 0 && !j.Preempted && r.adopted == "" {
		start.Accepted = r.d.Queue.Clock().When(j.CreatedAt)
	}
	if needs, err := catalog.DecodeRequirements(r.body.Requires); err == nil {
		start.Classes = len(needs.Classes)
	}
	if r.trace = tracer.Begin(start); r.adopted == "" {
		r.trace.Enter(traces.Claim, r.takenAt)
	}
}
