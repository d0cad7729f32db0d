package request

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// lostAfter is how often in a row the hub must not know a job before it is posted
	// again.
	lostAfter = 3
	// resultTries is how often the result of a finished job is asked for.
	resultTries = 5
	// workEvery is how often the outbox is told that work goes on; it tells the platform
	// less often.
	workEvery = time.Second
	// whyEvery is how often a request further back asks why nothing moves.
	whyEvery = 30 * time.Second
)

// errLost means that the hub no longer knows the job.
var errLost = errors.New("the hub has lost the job")

// follow watches the run until it ends. The event stream reports progress; polling reports
// the place in the queue, and whatever the stream missed.
func (j *job) follow(ctx context.Context) error {
	if err := j.status.tell(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	happenings := make(chan hubapi.Happening, 8)
	go j.listen(ctx, happenings)

	misses := 0
	look := time.NewTimer(j.firstLook())
	defer look.Stop()
	work := time.NewTicker(workEvery)
	defer work.Stop()
	if j.prog.known == nil {
		j.prog.known = j.r.paces.of(ctx, j.rec.Command)
	}
	for {
		select {
		case h := <-happenings:
			switch {
			case h.Preview != nil:
				j.prog.preview = h.Preview
				if j.rec.Previews {
					j.status.show()
				}
			case h.PromptID != j.rec.Prompt:
			case h.Ends():
				look.Reset(0)
			case j.prog.note(h):
				j.hubBack()
				j.status.show()
			}
		case <-j.cancels:
			if err := j.status.wantCancel(ctx); err != nil {
				return err
			}
			look.Reset(0)
		case <-work.C:
			if j.prog.started && !j.rec.Cancel {
				j.r.o.Outbox.Work(j.platform, j.rec.Chat, j.makes())
			}
		case <-look.C:
			ended, err := j.look(ctx)
			if ended || ctx.Err() != nil {
				return err
			}
			switch {
			case errors.Is(err, hubapi.ErrNotFound):
				if misses++; misses >= lostAfter {
					return j.repost(ctx)
				}
			case errors.Is(err, hubapi.ErrUnavailable):
				j.hubAway(ctx)
			case err != nil:
				return err
			default:
				misses = 0
				j.hubBack()
				moved, err := j.moveAlong(ctx)
				if err == nil && moved {
					err = j.status.tell(ctx) // the new chat has no message about it
				}
				if err != nil {
					return err
				}
				j.status.show()
			}
			look.Reset(j.r.pause(j.prog.started))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// firstLook is soon for a request from before a restart, which may have ended long ago.
func (j *job) firstLook() time.Duration {
	if time.Since(j.rec.Asked) > j.r.o.Look {
		return 0
	}
	return j.r.o.Look
}

// listen passes on the events of this request's own client id, and reopens the
// stream when it ends.
func (j *job) listen(ctx context.Context, out chan<- hubapi.Happening) {
	pauses := retry.New(firstPause, maxPause)
	for ctx.Err() == nil {
		socket, err := j.r.o.Hub.Follow(ctx, j.rec.Tenant(), j.rec.Client)
		for err == nil {
			var h hubapi.Happening
			if h, err = socket.Next(ctx); err != nil {
				socket.Close()
				break
			}
			pauses.Reset()
			select {
			case out <- h:
			case <-ctx.Done():
				socket.Close()
				return
			}
		}
		pauses.Wait(ctx)
	}
}

// look asks the hub about the job, and returns true once its end is stored.
func (j *job) look(ctx context.Context) (bool, error) {
	if j.rec.Cancel {
		if err := j.r.o.Hub.Cancel(ctx, j.rec.Tenant(), j.rec.Prompt); err != nil {
			return false, err
		}
	}
	found, err := j.r.o.Hub.Job(ctx, j.rec.Tenant(), j.rec.Prompt)
	if errors.Is(err, hubapi.ErrNotFound) && j.rec.Cancel {
		return true, j.entry.end(ctx, Cancelled, "")
	}
	if err != nil {
		return false, err
	}
	if !found.Ended() {
		if found.Status == "queued" && found.Position != nil {
			if j.prog.started {
				// The run was lost and is queued again.
				j.prog.restart()
			}
			j.prog.wait(*found.Position, j.rec.Asked)
			j.askWhy(ctx)
		} else {
			j.prog.position, j.prog.stuck = -1, ""
		}
		if found.Status == "running" {
			j.prog.started = true
		}
		j.expect(ctx, found.Left())
		return false, nil
	}
	j.rec.Took, j.rec.Instance = found.Took().Milliseconds(), found.Instance
	switch found.Status {
	case "cancelled":
		return true, j.entry.end(ctx, Cancelled, "")
	case "failed":
		reason := found.Error
		if result, err := j.r.o.Hub.Result(ctx, j.rec.Tenant(), j.rec.Prompt); err == nil && result.Failure != "" {
			reason = result.Failure
		}
		return true, j.fail(ctx, reason)
	}
	if took, whole := j.prog.times(found.Took()); whole {
		j.r.paces.learn(ctx, j.rec.Command, took)
	}
	return j.collect(ctx)
}

// askWhy asks why a request does not start, to tell the user if it cannot. While the queue
// moves, its place there says enough. Those further back ask less often.
func (j *job) askWhy(ctx context.Context) {
	p, now := j.prog, time.Now()
	if now.Sub(p.moved) < j.r.o.Patience || p.position >= j.r.o.Instances() && now.Sub(p.whyAt) < whyEvery {
		return
	}
	p.whyAt, p.stuck = now, ""
	e, err := j.r.o.Hub.Explain(ctx, j.rec.Tenant(), j.rec.Prompt)
	if err != nil || e.State != "queued" {
		return // it is about to start, or the hub cannot explain
	}
	if text, stuck := Why(j.r.o.Texts, j.rec.Language, e); stuck {
		p.stuck = text
	}
}

// collect records what a run made.
func (j *job) collect(ctx context.Context) (bool, error) {
	result, err := j.r.o.Hub.Result(ctx, j.rec.Tenant(), j.rec.Prompt)
	pauses := retry.New(2*firstPause, maxPause)
	for try := 1; errors.Is(err, hubapi.ErrNotFound) && try < resultTries; try++ {
		if !j.sleep(ctx, pauses.Next()) {
			return false, ctx.Err()
		}
		result, err = j.r.o.Hub.Result(ctx, j.rec.Tenant(), j.rec.Prompt)
	}
	if errors.Is(err, hubapi.ErrNotFound) {
		return true, j.fail(ctx, resultGone)
	}
	if err != nil {
		return false, err
	}
	files := slices.Clone(result.Files)
	lasting := slices.DeleteFunc(slices.Clone(files), func(f comfyui.FileRef) bool { return f.Type != "output" })
	if len(lasting) > 0 {
		files = lasting
	}
	j.rec.Outputs = nil
	for _, ref := range files {
		if ref.Type != "input" {
			j.rec.Outputs = append(j.rec.Outputs, Output{Ref: ref})
		}
	}
	j.rec.Texts = nil
	if c := j.r.o.Command(j.rec.Command); c == nil || c.Says() {
		j.rec.Texts = bounded(result.Texts, j.words.say("text_cut", nil))
	}
	return true, j.entry.end(ctx, Done, "")
}

// repost prepares to send a job that the hub has lost again, under the same id.
func (j *job) repost(ctx context.Context) error {
	j.r.o.Logger.Warn("posting a request again", "request", j.rec.ID, "error", errLost)
	j.rec.Phase = Ready
	j.prog.restart()
	return j.entry.save(ctx)
}

// expect notes when the request should end: as the hub says, or else by the command's last
// runs, counting the rounds of the fleet before it and its own run.
func (j *job) expect(ctx context.Context, left time.Duration) {
	if left == 0 && !j.prog.started {
		if mean, ok := j.r.o.Store.Usage.Mean(ctx, j.rec.Command); ok {
			rounds := 1 + max(0, j.prog.position)/max(1, j.r.o.Instances())
			left = time.Duration(rounds) * mean
		}
	}
	j.prog.expect(left, time.Now())
}
