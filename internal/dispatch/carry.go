package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// carry takes a claimed job through its run.
func (r *run) carry(ctx context.Context) {
	body, err := r.d.queue.Body(ctx, r.job.Key)
	if err != nil {
		r.giveBack(ctx, excused, "its body cannot be read: "+err.Error())
		return
	}
	r.body = body
	r.files = newHarvest(r)
	if r.cancelled {
		r.finish(ctx, cancelEnding(r.job, r.body, time.Now()))
		return
	}
	err = r.submit(ctx)
	var refused refusal
	switch {
	case err == nil:
		r.follow(ctx)
	case errors.As(err, &refused):
		r.refused(ctx, refused)
	case ctx.Err() != nil:
		// The hub stops; the lease ends and the job goes elsewhere.
	default:
		r.link.refuse(r.job.Key) // not at once again there
		v := lost
		switch {
		case errors.Is(err, errDied):
			v = killed
		case errors.Is(err, comfyui.ErrUnreachable), errors.Is(err, queue.ErrAway):
			v = excused
		}
		r.giveBack(ctx, v, "the instance did not take it: "+err.Error())
	}
}

// follow watches the run and brings home what it leaves.
func (r *run) follow(ctx context.Context) {
	v, reason := r.watch(ctx)
	switch v {
	case over:
		r.bringHome(ctx)
	case lost, killed:
		if r.cancelled {
			r.finish(ctx, cancelEnding(r.job, r.body, time.Now()))
			return
		}
		r.giveBack(ctx, v, reason)
	case excused:
		r.giveBack(ctx, v, reason)
	case dropped:
		r.out.Lose()
	}
}

// refused handles an instance that does not take the prompt. The catalog said
// that it can run it, so it may be the instance that has changed: another one
// is tried while there is one, and the client is told otherwise. A client that
// still waits for the answer to its POST gets the instance's.
func (r *run) refused(ctx context.Context, why refusal) {
	r.link.refuse(r.job.Key)
	r.study(ctx, why)
	r.d.learnFrom(why.Refused)
	if r.d.hasOther(r) {
		r.d.door(r.job.Key).another()
		r.giveBack(ctx, excused, "the instance refused it: "+why.Type)
		return
	}
	if r.reject(ctx, why) {
		return
	}
	t := refusalTrouble(why.Refused)
	r.log.Info("instance refused the prompt", "type", why.Type)
	r.begin(ctx, time.Now())
	r.send(0, "", comfyui.ExecutionStart(r.job.ID, time.Now()))
	r.finish(ctx, troubleEnding(r.job, r.body, t, time.Now()))
}

// reject makes the instance's refusal the answer to the client's POST, if that
// has no answer yet, and reports whether the job is off this hub's hands.
func (r *run) reject(ctx context.Context, why refusal) bool {
	err := r.retry(ctx, "reject", func(ctx context.Context) error {
		return r.d.queue.Reject(ctx, r.lease(), why.Body)
	})
	switch {
	case errors.Is(err, queue.ErrAnswered):
		return false
	case err != nil:
		r.out.Lose() // stale: somebody else ends it; or the hub stops
		return true
	}
	r.rejected = true
	r.log.Info("instance refused the prompt before its client was answered", "type", why.Type)
	if r.d.Observe != nil {
		r.d.Observe.Finished("rejected", 0)
	}
	r.free()
	r.d.door(r.job.Key).settle(nil)
	r.d.Wake()
	return true
}

// bringHome collects the results of a run that has ended: it frees the
// instance at once, copies the files, writes the history entry, and only then
// tells the client.
func (r *run) bringHome(ctx context.Context) {
	if r.retry(ctx, "release", func(ctx context.Context) error { return r.d.queue.Release(ctx, r.lease()) }) != nil {
		r.out.Lose()
		return
	}
	r.link.ended(r.job.Key)
	r.free()
	r.d.Wake()
	entry, found, err := r.history(ctx)
	if err != nil || !found {
		entry, found = r.transcribed()
	}
	if !found {
		r.giveBack(ctx, lost, "the instance's record of the run cannot be read")
		return
	}
	parts, ok := comfyui.ParseEntry(entry)
	if !ok {
		r.giveBack(ctx, lost, "the instance's record of the run is damaged")
		return
	}
	var outputs []byte
	if r.retry(ctx, "name outputs", func(ctx context.Context) (err error) {
		outputs, err = r.files.rename(ctx, parts.Outputs)
		return err
	}) != nil {
		return // the hub stops
	}
	if err := r.files.settle(ctx); err != nil {
		if ctx.Err() != nil {
			return
		}
		r.giveBack(ctx, lost, err.Error())
		return
	}
	if r.interruptedByUs(parts) {
		r.giveBack(ctx, lost, "it was silent for too long and was interrupted")
		return
	}
	end := r.ending(entry, parts, outputs)
	if r.failure != nil && end.state == job.Cancelled {
		end = troubleEnding(r.job, r.body, *r.failure, time.Now())
	}
	if r.gap && end.state == job.Done {
		if node := r.onlyBySocket(); node != "" {
			r.giveBack(ctx, excused, "the result of node "+node+" went over a socket that was lost")
			return
		}
	}
	if r.late || r.gap && end.state == job.Done {
		if r.began {
			r.catchUp(outputs)
		} else { // of this run nothing was heard at all
			end.messages = append(comfyui.ExecutedFromOutputs(outputs, r.job.ID), end.messages...)
		}
	}
	r.finish(ctx, end)
	r.clean(ctx)
}

// interruptedByUs reports whether the run ended because the hub gave it up as
// hanging, which is no end that its client should see.
func (r *run) interruptedByUs(parts comfyui.Entry) bool {
	return !r.gaveUp.IsZero() && !r.cancelled && parts.End == comfyui.TypeExecutionInterrupted
}

// history reads the instance's record of the run. It is there when the last
// message has been sent.
func (r *run) history(ctx context.Context) (entry []byte, found bool, err error) {
	for n := range 5 {
		entry, found, err = r.link.client.History(ctx, r.job.Run.Upstream)
		if err == nil && found {
			return entry, true, nil
		}
		pause(ctx, time.Duration(n+1)*100*time.Millisecond)
	}
	return entry, found, err
}

// ending builds the end of a run from the instance's record, which knows it
// for certain, and the message that was held back.
func (r *run) ending(entry []byte, parts comfyui.Entry, outputs []byte) ending {
	end := ending{state: stateOf(parts.End)}
	if parts.End == "" && (parts.Completed || parts.Status == "success") {
		end.state = job.Done // servers before 2024-07
	}
	end.entry = comfyui.RewriteEntry(entry, comfyui.EntryEdit{
		From: r.job.Run.Upstream, To: r.job.ID, Number: r.job.Number,
		Graph: r.body.Prompt, Extra: r.body.Extra, Outputs: outputs,
	})
	switch {
	case r.end != nil:
		end.messages = [][]byte{r.end}
		if m, ok := comfyui.ParseMessage(r.end); ok {
			end.state = stateOf(m.Type)
		}
	case parts.End != "":
		raw := []byte(`{"type": "` + parts.End + `", "data": ` + string(parts.EndData) + `}`)
		end.messages = [][]byte{comfyui.RewriteID(raw, r.job.Run.Upstream, r.job.ID)}
	case end.state == job.Done:
		end.messages = [][]byte{comfyui.ExecutionSuccess(r.job.ID, time.Now())}
	}
	return end
}

// onlyBySocket returns an output node whose results exist in messages only; a
// run that missed messages has then lost them.
func (r *run) onlyBySocket() string {
	for _, node := range r.body.Outputs {
		if classOf(r.body.Prompt, node) == "SaveImageWebsocket" {
			return node
		}
	}
	return ""
}

// finish writes the end of the job, and then lets the client have it.
func (r *run) finish(ctx context.Context, e ending) {
	outcome := e.outcome("")
	outcome.Uses = r.files.uses()
	err := r.retry(ctx, "finish", func(ctx context.Context) error {
		return r.d.queue.Finish(ctx, r.lease(), outcome)
	})
	if err != nil {
		r.out.Lose() // stale: somebody else ends it; or it was withdrawn, or the hub stops
		return
	}
	if r.began {
		r.out.End(e.frames()...)
	} else {
		frames := e.frames()
		r.d.announce(r.job, frames...)
	}
	if r.d.Observe != nil {
		r.d.Observe.Finished(string(e.state), r.ran())
	}
	r.log.Info("job ended", "outcome", string(e.state), "ran_ms", r.ran().Milliseconds())
}

// giveBack returns a lost run's job to its old place in the queue, or ends it
// when it has no attempts left or has killed too many instances. v is lost,
// excused or killed.
func (r *run) giveBack(ctx context.Context, v verdict, reason string) {
	if ctx.Err() != nil {
		return
	}
	r.out.Lose()
	r.began = false // if this is the end, its client is told from a new start
	r.free()
	r.log.Warn("run lost", "reason", reason)
	if r.d.Observe != nil {
		r.d.Observe.Finished("lost", r.ran())
	}
	var back job.Job
	err := r.retry(ctx, "requeue", func(ctx context.Context) (err error) {
		back, err = r.d.queue.Requeue(ctx, r.lease(), queue.RequeueOptions{
			Reason: attemptText(r.job, reason), Excused: v == excused, Killed: v == killed,
		})
		return err
	})
	switch {
	case errors.Is(err, queue.ErrExhausted):
		if back.Kills >= queue.MaxKills {
			r.log.Error("job is quarantined: it killed too many instances", "kills", back.Kills)
		}
		r.finish(ctx, troubleEnding(r.job, r.body, exhausted(back), time.Now()))
	case errors.Is(err, queue.ErrCancelled):
		r.finish(ctx, cancelEnding(r.job, r.body, time.Now()))
	}
	r.d.Wake()
}

// retry repeats a step for as long as Redis is away: what a run has won must
// not be lost because Redis restarts at the wrong moment.
func (r *run) retry(ctx context.Context, step string, do func(context.Context) error) error {
	for wait := 100 * time.Millisecond; ; wait = min(wait*2, 2*time.Second) {
		err := do(ctx)
		if err == nil || !errors.Is(err, queue.ErrAway) {
			if errors.Is(err, queue.ErrStale) {
				r.log.Warn("the run is no longer this hub's", "step", step)
			}
			return err
		}
		r.log.Warn("Redis is away, will try again", "step", step, "error", err)
		pause(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// free lets the instance have another job. It may be called twice.
func (r *run) free() {
	if r.link != nil && r.link.detach(r) {
		r.d.Fleet.SetRunning(r.link.name, "")
	}
}

// clean removes the run from the instance's own history, which would only
// grow there; the hub has it now.
func (r *run) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.link.client.DeleteHistory(ctx, r.job.Run.Upstream); err != nil {
		r.log.Debug("cannot clean the instance's history", "error", err)
	}
}

// ran is how long the run has been executing.
func (r *run) ran() time.Duration {
	if r.startedAt.IsZero() {
		return 0
	}
	return time.Since(r.startedAt)
}
