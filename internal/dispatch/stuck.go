package dispatch

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Watchdog counts the jobs that wait although an instance could run them.
type Watchdog struct {
	queue     *queue.Queue
	instances *Instances
	openings  *Openings
	blame     *Blame
	holds     *holds
	kept      *keptGPUs
	judged    *judgements
	signal    *signal
	log       *slog.Logger
	// stuck is the last count that watch made.
	stuck atomic.Int64
}

const (
	// stuckAfter is how long a job may wait beside an idle instance that can run it: no longer than
	// it takes to give it out.
	stuckAfter = time.Second
	// stuckWindow bounds how many waiting jobs are looked at for that.
	stuckWindow = 256
)

// Stuck returns how many jobs have been waiting for more than a second beside an idle instance that
// could run them. It is always 0 while the dispatcher does its work.
func (w *Watchdog) Stuck() int { return int(w.stuck.Load()) }

// watch counts the stuck jobs. It shares nothing with the loop that gives jobs out, so it notices
// when that loop hangs.
func (w *Watchdog) watch(ctx context.Context) {
	var before map[attempt]bool
	for retry.Sleep(ctx, stuckAfter) {
		now, err := w.besideIdle(ctx, stuckAfter)
		if err != nil {
			now = nil // while Redis is away nobody can give jobs out
		}
		stuck := 0
		for a := range now {
			if before[a] {
				stuck++
			}
		}
		if stuck > 0 {
			w.log.Warn("jobs are waiting although an idle instance can run them", "jobs", stuck)
			w.signal.Wake()
		}
		w.stuck.Store(int64(stuck))
		before = now
	}
}

// attempt is a job between two of its runs.
type attempt struct {
	key   string
	fence int64
}

// besideIdle returns the jobs that may run now but are waiting although an instance that can run
// them has been idle for some time, without those that are waiting for a better one.
func (w *Watchdog) besideIdle(ctx context.Context, idleFor time.Duration) (map[attempt]bool, error) {
	p := pass{taken: map[string]bool{}}
	for _, conn := range w.instances.Open() {
		if conn.IdleFor() < idleFor {
			p.taken[conn.Name] = true
		}
	}
	idle, infos := p.without(w.openings.Idle())
	if len(idle) == 0 {
		return nil, nil
	}
	for _, i := range idle {
		w.kept.mark(i.GPU, time.Now())
	}
	classes, err := w.queue.Classes(ctx)
	if err != nil || len(classes) == 0 {
		return nil, err
	}
	window, err := w.queue.Window(ctx, w.judged.able(idle, infos, classes), 0, stuckWindow)
	if err != nil || len(window.Jobs) == 0 {
		return nil, err
	}
	// Another hub may have given an instance a job that is not known here yet.
	taken, err := w.queue.Taken(ctx)
	if err != nil {
		return nil, err
	}
	w.blame.avoidFailed(window.Jobs, idle, classes)
	w.blame.avoidForParts(window.Jobs, idle)
	beside := map[attempt]bool{}
	for _, j := range window.Jobs {
		if w.holds.of(j.Key, time.Now()) == "" && anyCan(idle, taken, j) {
			beside[attempt{j.Key, j.Fence}] = true
		}
	}
	return beside, nil
}

func anyCan(idle []schedule.Idle, taken map[string]bool, j job.Job) bool {
	for _, i := range idle {
		if !taken[i.Name] && i.Can(j) {
			return true
		}
	}
	return false
}
