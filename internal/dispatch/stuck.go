package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// stuckAfter is how long a job may wait beside an idle instance that can run it: no longer than
	// it takes to give it out.
	stuckAfter = time.Second
	// stuckWindow bounds how many waiting jobs are looked at for that.
	stuckWindow = 256
)

// Stuck returns how many jobs have been waiting for more than a second beside an idle instance that
// could run them. It is always 0 while the dispatcher does its work.
func (d *Dispatcher) Stuck() int { return int(d.stuck.Load()) }

// watch counts the stuck jobs. It shares nothing with the loop that gives jobs out, so it notices
// when that loop hangs.
func (d *Dispatcher) watch(ctx context.Context) {
	var before map[attempt]bool
	for retry.Sleep(ctx, stuckAfter) {
		now, err := d.besideIdle(ctx, stuckAfter)
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
			d.log.Warn("jobs are waiting although an idle instance can run them", "jobs", stuck)
			d.Wake()
		}
		d.stuck.Store(int64(stuck))
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
func (d *Dispatcher) besideIdle(ctx context.Context, idleFor time.Duration) (map[attempt]bool, error) {
	p := pass{d: d, passed: map[string]bool{}}
	for _, conn := range d.connected() {
		if conn.idleFor() < idleFor {
			p.passed[conn.name] = true
		}
	}
	idle, infos := p.idle()
	if len(idle) == 0 {
		return nil, nil
	}
	for _, i := range idle {
		d.kept.mark(i.GPU, time.Now())
	}
	classes, err := d.queue.Classes(ctx)
	if err != nil || len(classes) == 0 {
		return nil, err
	}
	w, err := d.queue.Window(ctx, d.judged.able(idle, infos, classes), 0, stuckWindow)
	if err != nil || len(w.Jobs) == 0 {
		return nil, err
	}
	// Another hub may have given an instance a job that is not known here yet.
	taken, err := d.queue.Taken(ctx)
	if err != nil {
		return nil, err
	}
	d.avoidFailed(w.Jobs, idle, classes)
	d.avoidForParts(w.Jobs, idle, classes)
	beside := map[attempt]bool{}
	for _, j := range w.Jobs {
		if d.WaitsFor(j.Key) == "" && anyCan(idle, taken, j) {
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
