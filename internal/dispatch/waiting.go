package dispatch

import (
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// heard reacts to a hint from the queue.
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
	case queue.Asked:
		d.line.heard()
		d.Wake()
	case queue.Freed:
		if e.Hub != d.Hub {
			d.freedElsewhere(e)
		}
		d.freed()
	case queue.Refused:
		if e.Hub != d.Hub { // if it is this hub's own run, the run settles it when its instance is free again
			d.door(e.Key).settle(nil)
		}
	case queue.CancelAsk:
		d.CancelRun(e.Key)
	case queue.Withdrawn:
		d.line.leave(e.Key)
		// Its client may have been shown the run by now, so tell it that the run has ended.
		d.streams.Drop(stream.KeyOf(e.Requester), e.Key,
			stream.Text(comfyui.ExecutionInterrupted(e.ID, "", "", nil, time.Now())))
		d.WithdrawRun(e.Key)
		d.streams.JobChanged(e.Tenant, e.Caller)
	case queue.PartEnded:
		d.partEnded(e.Key)
	case queue.Ended:
		d.line.leave(e.Key)
		if e.Hub == d.Hub && e.State == job.Done {
			d.streams.JobMoved(e.Tenant, e.Caller) // its run has reported the number
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
	case queue.Splitting:
	case queue.Started: // changes neither a listing nor a count
		d.door(e.Key).settle(nil)
	}
}

// Explain says in plain words why a tenant's job is waiting.
func (d *Dispatcher) Explain(needs catalog.Requirements, tenant string) string {
	if d.paused() != nil { // the error says where the storage is
		return "the hub's storage takes no files now; jobs wait until it does"
	}
	conns, elsewhere := d.connected(), d.elsewhere(needs, tenant)
	if len(conns) == 0 && !elsewhere {
		return "no instance is connected"
	}
	var lacking []string
	for _, conn := range conns {
		info := conn.abilities()
		if info == nil {
			continue
		}
		missing := info.Satisfies(needs)
		if len(missing) == 0 && d.mayUse(tenant, conn.name) {
			return "waiting for an instance to become idle"
		}
		if len(missing) == 0 {
			lacking = append(lacking, conn.name+" "+forOthers)
			continue
		}
		lacking = append(lacking, conn.name+" lacks "+strings.Join(missing[:min(len(missing), 3)], ", "))
	}
	if elsewhere {
		return "waiting for an instance of another hub to become idle"
	}
	slices.Sort(lacking)
	return "no present instance can run it: " + strings.Join(lacking[:min(len(lacking), 5)], "; ")
}

// age returns how long ago a job was accepted.
func (d *Dispatcher) age(j job.Job) time.Duration {
	return time.Since(d.queue.Clock().When(j.CreatedAt))
}

// announce gives a client the complete sequence of a job that ended without a run that it could
// see.
func (d *Dispatcher) announce(j job.Job, end ...stream.Message) {
	if j.Parent != "" {
		return
	}
	msgs := append([]stream.Message{stream.Text(comfyui.ExecutionStart(j.ID, time.Now()))}, end...)
	k := stream.KeyOf(j.Requester)
	d.streams.Posted(k, d.queue.Clock().When(j.CreatedAt))
	d.streams.Ended(k, stream.Attempt{Prompt: j.ID, Job: j.Key, Fence: j.Fence}, msgs...)
	d.streams.StatusChanged(j.Caller)
}

// Interrupted tells a client that its job was stopped before it ran.
func (d *Dispatcher) Interrupted(j job.Job) {
	d.announce(j, stream.Text(comfyui.ExecutionInterrupted(j.ID, "", "", nil, time.Now())))
}
