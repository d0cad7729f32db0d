package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// collect collects the results of a run that its instance has finished: it frees the instance at
// once, copies the files, and says how the job ends.
func (r collecting) collect(ctx context.Context) result {
	if m, ok := comfyui.ParseMessage(r.end); ok && m.Type == comfyui.TypeExecutionError {
		// Before the instance is freed: it may not be fit for anything any more.
		if res := r.failed(ctx, failureOf(m.Data)); res.kind != undecided {
			return res
		}
	}
	if r.adopted != "" {
		r.told = r.recorded(ctx) // before the instance is freed, since the run is billed then
	}
	r.phase = released
	r.others.leave()
	showing(r).aside() // what they have said since the run's own last message
	r.trace.Enter(traces.Collect, time.Now())
	r.conn.Ended(r.billed())
	r.Detach()
	r.d.Signal.Freed()
	defer r.releaseSoon(ctx)()
	entry, found, res := r.readRecord(ctx)
	if res.kind != undecided {
		return res
	}
	if !found {
		entry, found = showing(r).transcribed()
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
			r.d.Memory.fits(dividing(r).made(), r.d.Reports.Memory(r.conn))
			r.measured()
		}
		finishing(r).endedWell()
	}
	rec := record{state: end.state, interrupted: parts.End == comfyui.TypeExecutionInterrupted}
	if r.missed.messages || r.resends { // else nobody needs to know, and finding out reads the whole graph
		rec.socketOnly, rec.cachedOnly = r.onlyBySocket(parts)
	}
	v, reason := r.judge(rec)
	switch {
	case v == excused && !r.missed.messages: // the instance has cached the result, and another may not have
		r.d.Rests.NotTaken(r.conn, r.Job().Key, false)
		if len(r.elsewhere()) == 0 {
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
			showing(r).catchUp(outputs)
		} else { // nothing at all was heard of this run
			end.messages = append(comfyui.ExecutedFromOutputs(outputs, r.Job().ID), end.messages...)
		}
	}
	return end
}

// onlyBySocket returns an output node whose results are only in messages, and one of them whose
// results the instance had cached, so that it did not send them in this run; "" for none. If the
// hub could not read what was asked for, it goes by the instance's record.
func (r collecting) onlyBySocket(parts comfyui.Entry) (node, cached string) {
	graph, outputs := r.body.Prompt, r.results
	if graph == nil {
		graph, outputs = parts.Graph, parts.Wanted
	}
	repeated := slices.DeleteFunc(slices.Clone(outputs), func(node string) bool { return !slices.Contains(r.cached, node) })
	return comfyui.OnlyBySocket(graph, outputs), comfyui.OnlyBySocket(graph, repeated)
}

// ending builds the end of a run from the instance's record, which is certain, and the message that
// was held back.
func (r collecting) ending(entry []byte, parts comfyui.Entry, outputs []byte) result {
	j := r.Job()
	end := result{kind: jobEnded, state: stateOf(parts.End)}
	if parts.End == "" && (parts.Completed || parts.Status == "success") {
		end.state = job.Done // servers before 2024-07
	}
	edit := comfyui.EntryEdit{
		From: j.Run.Upstream, To: j.ID, Number: j.Number,
		Graph: r.body.Prompt, Extra: r.body.Extra, Outputs: outputs,
	}
	if r.division != nil {
		edit.Wanted, edit.Meta = r.body.Outputs, r.division.meta
	}
	end.entry = r.division.hide(comfyui.RewriteEntry(entry, edit))
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

// releaseAfter is how long other hubs may believe that a run still has its instance.
const releaseAfter = 50 * time.Millisecond

// releaseSoon tells the queue that the run's instance is free, unless the end of the job or the
// claim of the next one says so within a moment: one of them usually does, which saves a round
// trip. Call stop at the end of the run.
func (r collecting) releaseSoon(ctx context.Context) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	lease := r.billed()
	r.beside("releasing an instance", func() {
		retry.Sleep(ctx, releaseAfter)
		for pauses := retry.New(100*time.Millisecond, 2*time.Second); ctx.Err() == nil; pauses.Wait(ctx) {
			if !errors.Is(r.d.Queue.Release(ctx, lease), queue.ErrUnavailable) {
				return // a stale run is no longer this hub's, and how it ends will tell
			}
		}
	})
	return stop
}
