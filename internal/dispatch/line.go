package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// maxLine bounds the waiting jobs that are known one by one.
const maxLine = 256

// waitLine are the first waiting jobs in the order in which they are due, as this hub knows
// them without asking Redis: it sees who comes and goes. Where that is not enough, since
// other hubs take prompts, too, it is read again. The zero value is empty.
type waitLine struct {
	mu   sync.Mutex
	jobs []inLine
	// gone are jobs that went since the line was last read: the answer that they are
	// accepted may come later.
	gone map[string]bool
	// stale says that the line must be read again.
	stale bool
}

type inLine struct{ key, class, shape string }

// join adds a job that has some others ahead of it.
func (l *waitLine) join(j inLine, position int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone[j.key] || slices.ContainsFunc(l.jobs, func(o inLine) bool { return o.key == j.key }) {
		return
	}
	if position > len(l.jobs) {
		l.stale = true
		return
	}
	l.jobs = slices.Insert(l.jobs, position, j)
	l.jobs = l.jobs[:min(len(l.jobs), maxLine)]
}

// leave takes out a job that waits no more.
func (l *waitLine) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.jobs)
	l.jobs = slices.DeleteFunc(l.jobs, func(o inLine) bool { return o.key == key })
	if before == maxLine && len(l.jobs) < before {
		l.stale = true // there may be more behind
	}
	if l.gone == nil || len(l.gone) > 10*maxLine {
		l.gone = map[string]bool{}
	}
	l.gone[key] = true
}

// heard notes that a job waits, perhaps one that another hub has accepted or given back.
func (l *waitLine) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
}

// first returns the jobs.
func (l *waitLine) first() []inLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.jobs)
}

// begin reports whether the line must be read, and forgets who is gone.
func (l *waitLine) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale := l.stale
	if stale {
		l.stale, l.gone = false, nil
	}
	return stale
}

// replace takes over what was read since begin.
func (l *waitLine) replace(jobs []inLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = slices.DeleteFunc(jobs, func(o inLine) bool { return l.gone[o.key] })
}

// readLine reads the line again if that is needed.
func (d *Dispatcher) readLine(ctx context.Context) {
	if !d.line.begin() {
		return
	}
	classes, err := d.queue.Classes(ctx)
	if err == nil {
		w, failed := d.queue.Window(ctx, slices.Collect(maps.Keys(classes)), 0, maxLine)
		if err = failed; err == nil {
			jobs := make([]inLine, 0, len(w.Jobs))
			for _, j := range w.Jobs {
				jobs = append(jobs, inLine{j.Key, j.Class, j.Shape})
			}
			d.line.replace(jobs)
			return
		}
	}
	d.line.heard()
	d.log.Debug("cannot read what waits", "error", err)
}
