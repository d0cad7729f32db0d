package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// maxLine bounds the waiting jobs that are known individually.
const maxLine = 256

// underWay is how many jobs may leave while the reply that accepts a job is on its way. If more are
// missing, the line does not know about them.
const underWay = 16

// readAgain is how often a line that is stale is read again.
const readAgain = 2 * time.Second

// waitLine holds the first waiting jobs in the order in which they are due, as this hub knows them
// without asking Redis: it sees jobs come and go. Where that is not enough, since other hubs take
// prompts too, it is read again. The zero value is empty.
type waitLine struct {
	queue *queue.Queue
	log   *slog.Logger

	mu   sync.Mutex
	jobs []job.Job
	// gone are jobs that left since the line was last read: the reply that accepts one may arrive
	// later.
	gone map[string]bool
	// stale says that the line must be read again.
	stale bool
	// reading says that the line is being read. came are jobs that joined meanwhile, at most
	// maxLine: what is read may be older than they are.
	reading bool
	came    []comer
}

// comer is a job that joined, and how many were ahead of it.
type comer struct {
	job.Job
	position int
}

// inLine returns the parts of a job that the line keeps.
func inLine(j job.Job) job.Job {
	return job.Job{Key: j.Key, ID: j.ID, Class: j.Class, Shape: j.Shape, Requester: j.Requester, Rank: j.Rank, Priority: j.Priority}
}

// join adds a job that has position others ahead of it. If a few of those have left since, it is
// added all the same: a short job that is not in the line would not be found behind long ones.
func (l *waitLine) join(j job.Job, position int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading && len(l.came) < maxLine {
		l.came = append(l.came, comer{j, position})
	}
	l.insert(j, position)
}

func (l *waitLine) insert(j job.Job, position int) {
	if l.gone[j.Key] || l.index(j.Key) >= 0 {
		return
	}
	if position > len(l.jobs) {
		l.stale = true
		if position > len(l.jobs)+underWay {
			return
		}
		position = len(l.jobs)
	}
	l.jobs = slices.Insert(l.jobs, position, j)
	l.jobs = l.jobs[:min(len(l.jobs), maxLine)]
}

// index returns the place of a job, -1 if it is not in the line. It does not use slices.IndexFunc,
// which would copy every job.
func (l *waitLine) index(key string) int {
	for at := range l.jobs {
		if l.jobs[at].Key == key {
			return at
		}
	}
	return -1
}

// leave removes a job that is no longer waiting.
func (l *waitLine) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.index(key); at >= 0 {
		l.stale = l.stale || len(l.jobs) == maxLine // there may be more behind
		l.jobs = slices.Delete(l.jobs, at, at+1)
	}
	if l.gone == nil || len(l.gone) > 10*maxLine {
		l.gone = map[string]bool{}
	}
	l.gone[key] = true
}

// heard notes that a job is waiting, perhaps one that another hub accepted or gave back.
func (l *waitLine) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
}

// interactive reports whether an interactive job is waiting, as far as is known.
func (l *waitLine) interactive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale || slices.ContainsFunc(l.jobs, func(j job.Job) bool { return j.Band() == job.Interactive })
}

func (l *waitLine) first() []job.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.jobs)
}

// shapes returns the shapes of the first n jobs.
func (l *waitLine) shapes(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	shapes := make([]string, min(n, len(l.jobs)))
	for at := range shapes {
		shapes[at] = l.jobs[at].Shape
	}
	return shapes
}

// begin reports whether the line must be read, and if so forgets who is gone.
func (l *waitLine) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale := l.stale
	if stale {
		l.stale, l.gone, l.reading, l.came = false, nil, true, nil
	}
	return stale
}

// replace stores what was read since begin.
func (l *waitLine) replace(jobs []job.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = slices.DeleteFunc(jobs, func(o job.Job) bool { return l.gone[o.Key] })
	for _, c := range l.came {
		l.insert(c.Job, c.position)
	}
	l.reading, l.came = false, nil
}

// tend reads the line again whenever that is necessary, until ctx ends.
func (l *waitLine) tend(ctx context.Context) {
	for retry.Sleep(ctx, readAgain) {
		l.read(ctx)
	}
}

// read reads the line again if necessary.
func (l *waitLine) read(ctx context.Context) {
	if !l.begin() {
		return
	}
	w, err := l.queue.Window(ctx, queue.Wanted{}, 0, maxLine)
	if err == nil {
		jobs := make([]job.Job, 0, len(w.Jobs))
		for _, j := range w.Jobs {
			jobs = append(jobs, inLine(j))
		}
		l.replace(jobs)
		return
	}
	l.heard()
	l.log.Debug("cannot read what waits", "error", err)
}
