package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// heard acts on a hint from the queue.
func (d *Dispatcher) heard(e queue.Event) {
	switch e.Kind {
	case queue.Resync:
		d.line.heard()
		d.work.Go(d.log, "putting back what Redis has lost", func() { d.heal(d.ctx) })
		d.Wake()
		d.streams.JobChanged("", "")
	case queue.Queued:
		d.line.heard()
		if e.Hub != "" || d.door(e.Key) == nil { // else this hub has accepted it, and knows
			d.Wake()
		}
		d.streams.JobChanged(e.Tenant, e.Caller)
		d.postedNext(e)
	case queue.Asked:
		d.line.heard()
		d.Wake()
		d.postedNext(e)
	case queue.Freed:
		d.freed()
	case queue.Refused:
		if e.Hub != d.Hub { // this hub's own run settles it when its instance is free again
			d.door(e.Key).settle(nil)
		}
	case queue.CancelAsk:
		d.CancelRun(e.Key)
	case queue.Withdrawn:
		d.line.leave(e.Key)
		// Its client may have been shown the run by now: it is told that it ends.
		d.streams.Drop(stream.KeyOf(e.Requester), e.Key,
			stream.Text(comfyui.ExecutionInterrupted(e.ID, "", "", nil, time.Now())))
		d.WithdrawRun(e.Key)
		d.streams.JobChanged(e.Tenant, e.Caller)
	case queue.Ended:
		d.line.leave(e.Key)
		if e.Hub == d.Hub && e.State == job.Done {
			d.streams.JobMoved(e.Tenant, e.Caller) // its run has told the number
		} else {
			d.streams.JobChanged(e.Tenant, e.Caller)
		}
		if e.Client != "" && e.Hub != "" && e.Hub != d.Hub {
			d.work.Go(d.log, "telling of a job's end", func() { d.EndedElsewhere(d.ctx, e) })
		}
	case queue.Claimed:
		d.line.leave(e.Key)
		d.ranElsewhere(e)
		d.streams.JobMoved(e.Tenant, e.Caller)
	case queue.Started: // changes neither a listing nor a count
		d.door(e.Key).settle(nil)
	}
}

// postedNext tells that a client has posted its next prompt, perhaps at another hub.
func (d *Dispatcher) postedNext(e queue.Event) {
	if e.Client != "" && e.Hub == "" { // new, not given back
		d.streams.PostedNext(stream.KeyOf(e.Requester), e.ID)
	}
}

// Explain says in plain words why a waiting job waits.
func (d *Dispatcher) Explain(needs catalog.Requirements) string {
	if d.paused() != nil { // the error tells where the storage is
		return "the hub's storage takes no files now; jobs wait until it does"
	}
	conns, elsewhere := d.connected(), d.elsewhere(needs)
	if len(conns) == 0 && elsewhere == "" {
		return "no instance is connected"
	}
	var lacking []string
	for _, conn := range conns {
		info := conn.abilities()
		if info == nil {
			continue
		}
		missing := info.Satisfies(needs)
		if len(missing) == 0 {
			return "waiting for an instance to become idle"
		}
		lacking = append(lacking, conn.name+" lacks "+strings.Join(missing[:min(len(missing), 3)], ", "))
	}
	if elsewhere != "" {
		return "waiting for an instance of another hub to become idle"
	}
	slices.Sort(lacking)
	return "no present instance can run it: " + strings.Join(lacking[:min(len(lacking), 5)], "; ")
}

// expire ends jobs that have waited too long for an instance that could run
// them. It goes with the safety tick: nobody is in a hurry here.
func (d *Dispatcher) expire(ctx context.Context) {
	classes, err := d.queue.Classes(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	conns := d.connected()
	stuck := map[string]time.Time{}
	infos := make([]*catalog.Info, 0, len(conns))
	for _, conn := range conns {
		infos = append(infos, conn.abilities())
	}
	for class, encoded := range d.judged.none(infos, classes) {
		needs, err := catalog.DecodeRequirements(encoded)
		if err != nil || d.elsewhere(needs) != "" {
			continue
		}
		since, known := d.unrunnable[class]
		if !known {
			since = now
		}
		stuck[class] = since
		if now.Sub(since) >= d.settings().UnrunnableTimeout {
			d.giveUp(ctx, class, d.Explain(needs))
		}
	}
	d.unrunnable = stuck
}

// giveUp fails the waiting jobs of a class that were accepted long enough ago.
func (d *Dispatcher) giveUp(ctx context.Context, class, reason string) {
	jobs, err := d.queue.Peek(ctx, []string{class}, 100)
	if err != nil {
		return
	}
	for _, j := range jobs {
		if j.Age(time.Now()) < d.settings().UnrunnableTimeout {
			continue
		}
		body, err := d.queue.Body(ctx, j.Key)
		if errors.Is(err, queue.ErrUnavailable) {
			return
		}
		// What cannot be read for good is no reason to let the job wait for ever.
		end := troubleEnding(j, body, trouble{
			kind:    "RuntimeError",
			message: fmt.Sprintf("No instance could run this prompt within %s: %s", d.settings().UnrunnableTimeout, reason),
		}, time.Now())
		err = d.queue.FailWaiting(ctx, j.Key, end.outcome(reason))
		if err != nil {
			if !errors.Is(err, queue.ErrNotQueued) {
				d.log.Warn("cannot end a job that nobody can run", "job", j.Key, "error", err)
			}
			continue
		}
		d.announce(j, end.frames()...)
	}
}

// announce gives a client the complete sequence of a job that ended without a
// run that it could see.
func (d *Dispatcher) announce(j job.Job, end ...stream.Message) {
	msgs := append([]stream.Message{stream.Text(comfyui.ExecutionStart(j.ID, time.Now()))}, end...)
	k := stream.KeyOf(j.Requester)
	d.streams.Posted(k, time.UnixMilli(j.CreatedAt))
	d.streams.Ended(k, stream.Attempt{Prompt: j.ID, Job: j.Key, Fence: j.Fence}, msgs...)
	d.streams.StatusChanged(j.Caller)
}

// Interrupted tells a client that its job was stopped before it ran.
func (d *Dispatcher) Interrupted(j job.Job) {
	d.announce(j, stream.Text(comfyui.ExecutionInterrupted(j.ID, "", "", nil, time.Now())))
}
