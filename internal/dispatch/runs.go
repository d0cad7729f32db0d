package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Runs are the runs that this hub follows.
type Runs struct {
	mu    sync.Mutex
	byJob map[string]*run // by job key
	// doubtful are the upstream ids of claims without an answer.
	doubtful map[string]bool
}

func newRuns() *Runs { return &Runs{byJob: map[string]*run{}, doubtful: map[string]bool{}} }

func (rs *Runs) add(r *run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.byJob[r.Job().Key] = r
}

func (rs *Runs) remove(r *run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if key := r.Job().Key; rs.byJob[key] == r {
		delete(rs.byJob, key)
	}
}

// doubt notes that nobody knows whether a claim went through, or that it is known again.
func (rs *Runs) doubt(upstream string, doubtful bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if delete(rs.doubtful, upstream); doubtful {
		rs.doubtful[upstream] = true
	}
}

// all returns the runs that this hub follows.
func (rs *Runs) all() []*run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	out := make([]*run, 0, len(rs.byJob))
	for _, r := range rs.byJob {
		out = append(out, r)
	}
	return out
}

// get returns the run of a job if this hub follows it, else nil.
func (rs *Runs) get(key string) *run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.byJob[key]
}

// Cancel tells the run of a job, if this hub has it, that the client wants it to end.
func (rs *Runs) Cancel(key string) {
	if r := rs.get(key); r != nil {
		r.parting.unwant()
		r.mail.put(runEvent{kind: cancelAsked})
	}
}

// Withdraw is Cancel for a job that its client has withdrawn: nobody is told about its run
// any more.
func (rs *Runs) Withdraw(key string) {
	if r := rs.get(key); r != nil {
		r.parting.silently.Store(true)
		r.parting.unwant()
		r.mail.put(runEvent{kind: withdrawAsked})
	}
}

// seize gives an adopted run the connection. Two runs can be adopted at one instance, and the one
// waiting there may come first. The dispatcher may also hold the connection for a moment, only to
// find that the queue does not let it give the instance a second job.
func (rs *Runs) seize(ctx context.Context, conn *instance.Link, r *run, within time.Duration) bool {
	until := time.Now().Add(within)
	for !conn.Attach(r.holder()) && !rs.join(conn, r) {
		if time.Now().After(until) || ctx.Err() != nil {
			return false
		}
		retry.Sleep(ctx, 10*time.Millisecond)
	}
	conn.Show(r.holder())
	return true
}

// join puts an adopted run behind the one that has the connection.
func (rs *Runs) join(conn *instance.Link, r *run) bool {
	current := conn.Running()
	return current != nil && rs.get(current.Job().Key).holder() == current && conn.AttachAhead(r.holder())
}

// claims reports whether this hub is still asking for a run. It gets the run with the answer, and
// must not take it over from itself.
func (rs *Runs) claims(held job.Run) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.doubtful[held.Upstream]
}
