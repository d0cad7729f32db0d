package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// maxUnsealed is how often a hub tries to decrypt the API keys of a job. In between, another hub,
// whose keys may differ, can try.
const maxUnsealed = 3

// unreadable is the result of a run whose body cannot be read.
func (r *run) unreadable(ctx context.Context, err error) result {
	reason := "its body cannot be read: " + err.Error()
	switch {
	case ctx.Err() != nil:
		return result{kind: dropped}
	case errors.Is(err, queue.ErrUnavailable):
		return r.queueAway(err)
	case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrCorrupt):
		return result{kind: hopeless, reason: reason}
	case errors.Is(err, queue.ErrSecrets):
		if r.d.rests.notHere(r.Job().Key) >= maxUnsealed-1 {
			return result{kind: hopeless, reason: reason}
		}
		return result{kind: excused, reason: reason}
	}
	return result{kind: excused, reason: reason, anywhere: true}
}

// queueAway is the result of a run whose data cannot be read because Redis is away. The error
// contains Redis's address, and the client is shown the reason.
func (r *run) queueAway(err error) result {
	r.log.Warn("Redis is away", "error", err)
	return result{kind: excused, cause: Redis, reason: "the hub's queue cannot be reached", anywhere: true}
}

// notTaken is the result of a run whose prompt never reached the instance.
func (r *run) notTaken(err error) result {
	// The client is shown the reason, and the errors say where the storage is.
	switch {
	case errors.Is(err, files.ErrGone):
		r.log.Warn("an input file is gone", "error", err)
		return result{kind: hopeless, reason: "an input file is gone"}
	case errors.Is(err, files.ErrStorage):
		r.log.Warn("an input file cannot be read", "error", err)
		return result{kind: excused, cause: Storage, reason: "the hub's storage cannot be read", anywhere: true}
	case errors.Is(err, queue.ErrUnavailable):
		return r.queueAway(err)
	}
	r.d.rests.notTaken(r.conn, r.Job().Key, false)
	v, cause := lost, Refused
	switch {
	case errors.Is(err, errDied):
		v, cause = killed, Died
	case errors.Is(err, errSilent) && !errors.Is(err, comfyui.ErrUnreachable):
		cause = Unreachable
	case errors.Is(err, comfyui.ErrUnreachable):
		v, cause = excused, Unreachable
	}
	return result{kind: v, cause: cause, died: v == killed, reason: "the instance did not take it: " + err.Error()}
}

// follow watches the run and collects its results.
func (r *run) follow(ctx context.Context) result {
	res := r.watch(ctx)
	switch {
	case res.kind == instanceDone:
		return r.collect(ctx)
	case (res.kind == lost || res.kind == killed || res.kind == unused) && r.wish != wanted:
		return r.cancelledEnd()
	case res.kind == lost && r.Job().Ahead && r.phase < executing:
		res.kind = excused // the instance was lost during another run
	}
	return res
}

// cancelledEnd is the result of a cancelled run whose instance does not report the interrupt.
func (r *run) cancelledEnd() result {
	return cancelEnding(r.Job(), r.body, time.Now())
}

// refused handles an instance that does not take the prompt. The catalog says that it can run the
// prompt, so the instance may have changed: another one is tried if there is one, else the client
// is told. A client that is still waiting for the answer to its POST gets the instance's answer; so
// does one that would have to wait for instances that would say the same.
func (r *run) refused(ctx context.Context, why refusal) result {
	j := r.Job()
	r.d.rests.notTaken(r.conn, j.Key, true)
	r.keepLessons(ctx, why)
	r.d.discovery.LearnFrom(why.Refused)
	if others := r.d.instances.others(r); len(others) > 0 {
		if r.speaksFor(others, why) {
			if v := r.reject(ctx, why); v != undecided {
				return result{kind: v}
			}
		}
		r.d.doors.of(j.Key).another()
		return result{kind: excused, cause: Refused, reason: "the instance refused it: " + why.Type}
	}
	if j.Excuses < freeExcuses && r.runsElsewhere() {
		r.d.doors.of(j.Key).another()
		return result{kind: excused, cause: Refused, reason: "the instance refused it: " + why.Type}
	}
	if v := r.reject(ctx, why); v != undecided {
		return result{kind: v}
	}
	r.log.Info("instance refused the prompt", "type", why.Type)
	r.openStream(ctx)
	r.send(0, "", comfyui.ExecutionStart(j.ID, time.Now()))
	return errorEnding(r.Job(), r.body, refusalError(why.Refused), time.Now())
}

// speaksFor reports whether an instance's refusal stands for all the others, none of which can be
// asked now: they have the same version and describe the classes in the same way. An idle one is
// asked, since its code may still differ.
func (r *run) speaksFor(others []*instance.Link, why refusal) bool {
	info, version := r.conn.Abilities(), r.conn.Capability()
	if info == nil {
		return false
	}
	for _, other := range others {
		its := other.Abilities()
		if its == nil || other.Capability() != version || r.d.reports.IsIdle(other) || !info.RefusesAlike(its, r.body.Prompt, why.NodeErrors) {
			return false
		}
	}
	return true
}

// reject makes the instance's refusal the answer to the client's POST. It returns undecided if the
// client already has an answer.
func (r *run) reject(ctx context.Context, why refusal) resultKind {
	err := r.retry(ctx, "reject", func(ctx context.Context) error {
		return r.d.queue.Reject(ctx, r.lease(), why.Body)
	})
	switch {
	case errors.Is(err, queue.ErrAnswered):
		return undecided
	case err != nil:
		return dropped // stale: somebody else ends it; or the hub is stopping
	}
	r.phase = ended
	r.log.Info("instance refused the prompt before its client was answered", "type", why.Type)
	r.finished("rejected", 0)
	r.free()
	r.d.doors.of(r.Job().Key).settle(nil)
	r.d.signal.Wake()
	return rejected
}

// collect collects the results of a run that its instance has finished: it frees the instance at
// once, copies the files, and says how the job ends.
func (r *run) collect(ctx context.Context) result {
	if m, ok := comfyui.ParseMessage(r.end); ok && m.Type == comfyui.TypeExecutionError {
		// Before the instance is freed: it may not be fit for anything any more.
		if res := r.failed(ctx, failureOf(m.Data)); res.kind != undecided {
			return res
		}
	}
	r.phase = released
	r.trace.Enter(traces.Collect, time.Now())
	r.conn.Ended(r.billed())
	r.free()
	r.d.signal.Freed()
	defer r.releaseSoon(ctx)()
	entry, found, res := r.readRecord(ctx)
	if res.kind != undecided {
		return res
	}
	if !found {
		entry, found = r.transcribed()
	}
	if !found {
		return result{kind: lost, cause: Results, reason: "the instance's record of the run cannot be read"}
	}
	parts, ok := comfyui.ParseEntry(entry)
	if !ok {
		return result{kind: lost, cause: Results, reason: "the instance's record of the run is damaged"}
	}
	outputs, res := r.outputsOf(ctx, parts)
	if res.kind != undecided {
		return res
	}
	if res = r.settle(ctx); res.kind != undecided {
		return res
	}
	if r.end == nil && parts.End == comfyui.TypeExecutionError {
		if res := r.failed(ctx, failureOf(parts.EndData)); res.kind != undecided {
			return res
		}
	}
	end := r.ending(entry, parts, outputs)
	if end.state == job.Done {
		if r.division == nil { // else it says nothing about the whole graph
			r.d.memory.fits(r.body.Prompt, r.d.reports.Memory(r.conn))
			r.measured()
		}
		r.endedWell()
	}
	rec := record{state: end.state, interrupted: parts.End == comfyui.TypeExecutionInterrupted}
	if r.missed.messages || r.resends { // else nobody needs to know, and finding out reads the whole graph
		rec.socketOnly, rec.cachedOnly = r.onlyBySocket(parts)
	}
	v, reason := r.judge(rec)
	switch {
	case v == excused && !r.missed.messages: // the instance has cached the result, and another may not have
		r.d.rests.notTaken(r.conn, r.Job().Key, false)
		if len(r.d.instances.others(r)) == 0 {
			v = hopeless
		}
		return result{kind: v, cause: r.judgedCause(), reason: reason}
	case v == lost || v == excused || v == unused:
		return result{kind: v, cause: r.judgedCause(), reason: reason, anywhere: true}
	}
	if v == timedOut {
		end = errorEnding(r.Job(), r.body, comfyui.Failure{
			Type: "TimeoutError", NodeID: r.stop.node,
			Message: "The prompt ran longer than the hub's job_timeout allows.",
		}, time.Now())
	}
	if r.owesOutputs(end.state) {
		if r.out != nil {
			r.catchUp(outputs)
		} else { // nothing at all was heard of this run
			end.messages = append(comfyui.ExecutedFromOutputs(outputs, r.Job().ID), end.messages...)
		}
	}
	return end
}

// onlyBySocket returns an output node whose results are only in messages, and one of them whose
// results the instance had cached, so that it did not send them in this run; "" for none. If the
// hub could not read what was asked for, it goes by the instance's record.
func (r *run) onlyBySocket(parts comfyui.Entry) (node, cached string) {
	graph, outputs := r.body.Prompt, r.results
	if graph == nil {
		graph, outputs = parts.Graph, parts.Wanted
	}
	repeated := slices.DeleteFunc(slices.Clone(outputs), func(node string) bool { return !slices.Contains(r.cached, node) })
	return comfyui.OnlyBySocket(graph, outputs), comfyui.OnlyBySocket(graph, repeated)
}

// takeBody notes what is to run. A hub that knew no classes when it accepted the prompt did not
// know its output nodes; the graph still tells those whose results are only in messages.
func (r *run) takeBody(body job.Body) {
	r.body, r.results = body, body.Outputs
	if len(body.Outputs) == 0 {
		r.results = comfyui.SocketNodes(body.Prompt)
	}
	r.mail.setResults(r.results)
	r.beginTrace()
}

// ending builds the end of a run from the instance's record, which is certain, and the message that
// was held back.
func (r *run) ending(entry []byte, parts comfyui.Entry, outputs []byte) result {
	j := r.Job()
	end := result{kind: jobEnded, state: stateOf(parts.End)}
	if parts.End == "" && (parts.Completed || parts.Status == "success") {
		end.state = job.Done // servers before 2024-07
	}
	end.entry = comfyui.RewriteEntry(entry, comfyui.EntryEdit{
		From: j.Run.Upstream, To: j.ID, Number: j.Number,
		Graph: r.body.Prompt, Extra: r.body.Extra, Outputs: outputs,
	})
	end.entry = r.division.hide(end.entry)
	switch {
	case r.end != nil:
		end.messages = [][]byte{r.end}
		if m, ok := comfyui.ParseMessage(r.end); ok {
			end.state = stateOf(m.Type)
		}
	case parts.End != "":
		raw := []byte(`{"type": "` + parts.End + `", "data": ` + string(parts.EndData) + `}`)
		end.messages = [][]byte{r.division.hide(comfyui.RewriteID(raw, j.Run.Upstream, j.ID))}
	case end.state == job.Done:
		end.messages = [][]byte{comfyui.ExecutionSuccess(j.ID, time.Now())}
	}
	return end
}

// runsElsewhere reports whether another hub has an instance that could run the job.
func (r *run) runsElsewhere() bool {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	return err == nil && r.d.otherHubs.has(needs, r.Job().Tenant)
}
