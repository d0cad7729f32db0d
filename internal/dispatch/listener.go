package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/lease"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// listener reacts to what this hub and others do to the queue.
type listener struct {
	queue          *queue.Queue
	streams        *stream.Streams
	hub            string
	endedElsewhere func(ctx context.Context, e queue.Event)
	instances      *Instances
	runs           *run.Runs
	leases         *lease.Leases
	doors          *run.Doors
	line           *waitLine
	models         *modelSets
	signal         *signal
	ctx            context.Context
	work           *panics.Group
	log            *slog.Logger
}

// heard reacts to a hint from the queue.
func (l *listener) heard(e queue.Event) {
	switch e.Kind {
	case queue.Resync:
		l.line.heard()
		l.work.Go(l.log, "putting back what Redis has lost", func() { l.leases.HealSoon(l.ctx) })
		l.signal.Wake()
		l.streams.Statuses.JobChanged("", "")
	case queue.Queued:
		l.line.heard()
		if e.Hub != "" || !l.doors.Accepted(e.Key) { // else this hub has accepted it, and knows
			l.signal.Wake()
		}
		l.streams.Statuses.JobChanged(e.Tenant, e.Caller)
	case queue.Asked:
		l.line.heard()
		l.signal.Wake()
	case queue.Freed:
		if e.Hub != l.hub {
			l.freedElsewhere(e)
		}
		l.signal.Freed()
	case queue.Refused:
		if e.Hub != l.hub { // if it is this hub's own run, the run settles it when its instance is free again
			l.doors.Settle(e.Key)
		}
	case queue.CancelAsk:
		l.runs.Cancel(e.Key)
	case queue.Withdrawn:
		l.line.leave(e.Key)
		// Its client may have been shown the run by now, so tell it that the run has ended.
		l.streams.Drop(stream.KeyOf(e.Requester), e.Key,
			stream.Text(comfyui.ExecutionInterrupted(e.ID, "", "", nil, time.Now())))
		l.runs.Withdraw(e.Key)
		l.streams.Statuses.JobChanged(e.Tenant, e.Caller)
	case queue.PartEnded:
		l.runs.PartEnded(e.Key)
	case queue.Ended:
		l.line.leave(e.Key)
		if e.Hub == l.hub && e.State == job.Done {
			l.streams.Statuses.JobMoved(e.Tenant, e.Caller) // its run has reported the number
		} else {
			l.streams.Statuses.JobChanged(e.Tenant, e.Caller)
		}
		if e.Client != "" && e.Hub != "" && e.Hub != l.hub {
			l.work.Go(l.log, "telling of a job's end", func() { l.endedElsewhere(l.ctx, e) })
		}
	case queue.Claimed:
		l.line.leave(e.Key)
		l.ranElsewhere(e)
		l.streams.Statuses.JobMoved(e.Tenant, e.Caller)
	case queue.Splitting:
	case queue.Started: // changes neither a listing nor a count
		l.doors.Settle(e.Key)
	}
}

// follow reacts to what this hub and others do to the queue.
func (l *listener) follow(ctx context.Context) {
	for e := range l.queue.Subscribe(ctx) {
		l.heard(e)
	}
}

// freedElsewhere notes that another hub has let go of an instance.
func (l *listener) freedElsewhere(e queue.Event) {
	conn := l.instances.Get(e.Instance)
	if conn == nil {
		return
	}
	if turn := conn.LetGo(e.Key); turn > 0 {
		l.signal.freedAfter(turn)
	}
}

// ranElsewhere notes what an instance is running and loading for another hub.
func (l *listener) ranElsewhere(e queue.Event) {
	conn := l.instances.Get(e.Instance)
	if conn == nil || e.Hub == l.hub {
		return
	}
	conn.Given(e.Key, e.Shape, e.Class != "")
	if e.Class == "" {
		return
	}
	l.work.Go(l.log, "noting what an instance loads", func() {
		conn.Loads(l.models.get(l.ctx, e.Class))
	})
}
