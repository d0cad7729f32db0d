package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/run"
)

// leases keeps the leases of this hub's runs and takes over runs whose leases have ended.
type leases struct {
	queue      *queue.Queue
	settings   func() Settings
	hub, hubID string
	runs       *run.Runs
	runner     *run.Runner
	observe    run.Observer
	log        *slog.Logger
	// lost are the runs that the last renewal did not find.
	lost chan []job.Run
}

// keep renews this hub's leases, even while an instance is silent: a lease says that the hub
// is alive, not that the run makes progress. Nothing slow may hold it up.
func (l *leases) keep(ctx context.Context) {
	for ctx.Err() == nil {
		l.renew(ctx)
		retry.Sleep(ctx, l.settings().Lease/3)
	}
}

// tend restores what Redis has lost and takes over runs whose leases have ended. It may take a
// long time, and no lease waits for it.
func (l *leases) tend(ctx context.Context) {
	l.heal(ctx)
	l.adoptOwn(ctx)
	for ctx.Err() == nil {
		l.heal(ctx)
		l.recover(ctx, nil)
		l.sweep(ctx)
		timer := time.NewTimer(l.settings().Lease / 3)
		for due := false; !due && ctx.Err() == nil; {
			select {
			case lost := <-l.lost:
				l.recover(ctx, lost)
			case <-timer.C:
				due = true
			case <-ctx.Done():
			}
		}
		timer.Stop()
	}
}

// heal restores what Redis has lost.
func (l *leases) heal(ctx context.Context) {
	if err := l.queue.Heal(ctx); err != nil && ctx.Err() == nil {
		l.log.Debug("cannot check what Redis has lost", "error", err)
	}
}

func (l *leases) renew(ctx context.Context) {
	held := l.runs.Leases()
	if len(held) == 0 {
		return
	}
	result, err := l.queue.Renew(ctx, l.hub, held)
	if err != nil {
		return // Redis is away; the runs go on
	}
	if len(result.Lost) > 0 {
		select {
		case l.lost <- result.Lost:
		default: // the next renewal finds them again
		}
	}
	for _, c := range result.Cancelled {
		l.runs.Cancel(c.Key)
	}
	for _, w := range result.Withdrawn {
		l.runs.Withdraw(w.Key)
	}
}

// recover restores runs that Redis has lost and gives up those that now have another holder. It
// never overlaps with a sweep, which gives this hub's own run a new lease if the old one ended: a
// renewal under way would take that run for lost, and by the time it is looked at here it has the
// new fence.
func (l *leases) recover(ctx context.Context, lost []job.Run) {
	gone, err := l.queue.Recover(ctx, l.runs.Leases(), lost)
	if err != nil {
		return // the next renewal finds them again
	}
	for _, held := range gone {
		l.runs.Lose(held)
	}
}

// adoptOwn takes over the runs of an earlier process of this hub without waiting for their leases
// to end.
func (l *leases) adoptOwn(ctx context.Context) {
	pauses := retry.New(time.Second, time.Second)
	for ctx.Err() == nil {
		runs, err := l.queue.Runs(ctx)
		if err != nil {
			pauses.Wait(ctx)
			continue
		}
		for _, held := range runs {
			if held.Hub == l.hub || !sameHub(held.Hub, l.hubID) {
				continue
			}
			orphan, err := l.queue.Adopt(ctx, held, l.hub)
			if err == nil {
				l.adopt(ctx, orphan, run.Own)
			}
		}
		return
	}
}

// sameHub reports whether a holder, "id/boot", is the hub with this id.
func sameHub(holder, id string) bool {
	return len(holder) > len(id) && holder[:len(id)] == id && holder[len(id)] == '/'
}

// sweep takes over runs whose holder let the lease run out.
func (l *leases) sweep(ctx context.Context) {
	orphans, err := l.queue.Sweep(ctx, l.hub, 100)
	if err != nil {
		return
	}
	for _, o := range orphans {
		l.runs.Relet(o.Run) // before anything slow: it cannot be renewed until then
	}
	for _, o := range orphans {
		l.adopt(ctx, o, run.Expired)
	}
}

// adopt follows a run that somebody else began. A run that is still going on is followed to its
// end, one that has ended is collected, and only a job whose run is really lost runs again.
func (l *leases) adopt(ctx context.Context, o queue.Orphan, from run.Origin) {
	ours := l.runs.Relet
	if from == run.Silent {
		ours = l.runs.Held
	}
	if ours(o.Run) || l.runs.Claims(o.Run) {
		return
	}
	j, err := l.queue.Get(ctx, o.Key)
	if err != nil {
		l.log.Warn("cannot read an orphaned job", "job", o.Key, "error", err)
		return
	}
	l.observe.Adopted(from)
	l.log.Info("taking over a run", "job", o.Key, "instance", o.Instance)
	l.runner.Adopt(o, j, from)
}
