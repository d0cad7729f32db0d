// Package lease keeps the leases of a hub's runs, says that the hub is alive, and takes over the runs of
// hubs that are not.
package lease

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/run"
)

// Config is what leases are kept with.
type Config struct {
	Queue *queue.Queue
	// Lease is how long a lease lasts; it is renewed three times within that.
	Lease func() time.Duration
	// Hub is this process, as id/boot, and HubID the part of it that outlives the process.
	Hub, HubID string
	Runs       *run.Runs
	Runner     *run.Runner
	Observe    run.Observer
	Logger     *slog.Logger
}

// Leases keeps the leases of this hub's runs and takes over runs whose leases have ended.
type Leases struct {
	Config
	// lost are the runs that the last renewal did not find.
	lost chan []job.Run
}

// New returns the leases of a hub. Keep and Tend do the work.
func New(c Config) *Leases { return &Leases{Config: c, lost: make(chan []job.Run, 1)} }

// Keep renews this hub's leases, even while an instance is silent: a lease says that the hub
// is alive, not that the run makes progress. Nothing slow may hold it up.
func (l *Leases) Keep(ctx context.Context) {
	for ctx.Err() == nil {
		l.renew(ctx)
		retry.Sleep(ctx, l.Lease()/3)
	}
}

// Tend restores what Redis has lost and takes over runs whose leases have ended. It may take a
// long time, and no lease waits for it.
func (l *Leases) Tend(ctx context.Context) {
	l.Heal(ctx)
	l.adoptOwn(ctx)
	for ctx.Err() == nil {
		l.Heal(ctx)
		l.recover(ctx, nil)
		l.sweep(ctx)
		timer := time.NewTimer(l.Lease() / 3)
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

// Heal restores what Redis has lost.
func (l *Leases) Heal(ctx context.Context) {
	if err := l.Queue.Heal(ctx); err != nil && ctx.Err() == nil {
		l.Logger.Debug("cannot check what Redis has lost", "error", err)
	}
}

// HealSoon is Heal for when Redis has just come back. It is repeated if it fails, as calls on old
// connections do, until Tend would do it: other hubs lack what this one is to put back.
func (l *Leases) HealSoon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.Lease()/3)
	defer cancel()
	for pauses := retry.New(20*time.Millisecond, time.Second); l.Queue.Heal(ctx) != nil && ctx.Err() == nil; {
		pauses.Wait(ctx)
	}
}

func (l *Leases) renew(ctx context.Context) {
	held := l.Runs.Leases()
	if len(held) == 0 {
		return
	}
	result, err := l.Queue.Renew(ctx, l.Hub, held)
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
		l.Runs.Cancel(c.Key)
	}
	for _, w := range result.Withdrawn {
		l.Runs.Withdraw(w.Key)
	}
}

// recover restores runs that Redis has lost and gives up those that now have another holder. It
// never overlaps with a sweep, which gives this hub's own run a new lease if the old one ended: a
// renewal under way would take that run for lost, and by the time it is looked at here it has the
// new fence.
func (l *Leases) recover(ctx context.Context, lost []job.Run) {
	gone, err := l.Queue.Recover(ctx, l.Runs.Leases(), lost)
	if err != nil {
		return // the next renewal finds them again
	}
	for _, held := range gone {
		l.Runs.Lose(held)
	}
}

// adoptOwn takes over the runs of an earlier process of this hub without waiting for their leases
// to end.
func (l *Leases) adoptOwn(ctx context.Context) {
	pauses := retry.New(time.Second, time.Second)
	for ctx.Err() == nil {
		runs, err := l.Queue.Runs(ctx)
		if err != nil {
			pauses.Wait(ctx)
			continue
		}
		for _, held := range runs {
			if held.Hub == l.Hub || !sameHub(held.Hub, l.HubID) {
				continue
			}
			orphan, err := l.Queue.Adopt(ctx, held, l.Hub)
			if err == nil {
				l.Adopt(ctx, orphan, run.Own)
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
func (l *Leases) sweep(ctx context.Context) {
	orphans, err := l.Queue.Sweep(ctx, l.Hub, 100)
	if err != nil {
		return
	}
	for _, o := range orphans {
		l.Runs.Relet(o.Run) // before anything slow: it cannot be renewed until then
	}
	for _, o := range orphans {
		l.Adopt(ctx, o, run.Expired)
	}
}

// Adopt follows a run that somebody else began, where from says. A run that is still going on is followed to its
// end, one that has ended is collected, and only a job whose run is really lost runs again.
func (l *Leases) Adopt(ctx context.Context, o queue.Orphan, from run.Origin) {
	ours := l.Runs.Relet
	if from == run.Silent {
		ours = l.Runs.Held
	}
	if ours(o.Run) || l.Runs.Claims(o.Run) {
		return
	}
	j, err := l.Queue.Get(ctx, o.Key)
	if err != nil {
		l.Logger.Warn("cannot read an orphaned job", "job", o.Key, "error", err)
		return
	}
	l.Observe.Adopted(from)
	l.Logger.Info("taking over a run", "job", o.Key, "instance", o.Instance)
	l.Runner.Adopt(o, j, from)
}
