package run

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
	byJob map[string]*Run // by job key
	// doubtful are the upstream ids of claims without an answer.
	doubtful map[string]bool
}

// NewRuns returns runs of which there are none yet.
func NewRuns() *Runs { return &Runs{byJob: map[string]*Run{}, doubtful: map[string]bool{}} }

func (rs *Runs) add(r *Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.byJob[r.Job().Key] = r
}

func (rs *Runs) remove(r *Run) {
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

// Leases returns the leases of the runs that this hub follows.
func (rs *Runs) Leases() []job.Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	out := make([]job.Run, 0, len(rs.byJob))
	for _, r := range rs.byJob {
		out = append(out, r.Lease())
	}
	return out
}

// Relet continues this hub's run of a job under a new fence, and reports whether it has one. It was
// the hub's while Redis was away, or another hub took it while this one was hanging.
func (rs *Runs) Relet(lease job.Run) bool {
	r := rs.Get(lease.Key)
	if r != nil {
		r.relet(lease)
	}
	return r != nil
}

// Held is Relet for a run that another hub may be following as well.
func (rs *Runs) Held(lease job.Run) bool {
	held := rs.Relet(lease)
	if held {
		rs.Get(lease.Key).mail.put(runEvent{kind: heldElsewhere})
	}
	return held
}

// Lose tells the run of a job that it has another holder, unless it is a newer one than the queue
// speaks of.
func (rs *Runs) Lose(lease job.Run) {
	if r := rs.Get(lease.Key); r != nil && r.Lease().Fence == lease.Fence {
		r.mail.put(runEvent{kind: leaseLost})
	}
}

// Get returns the run of a job if this hub follows it, else nil.
func (rs *Runs) Get(key string) *Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.byJob[key]
}

// Cancel tells the run of a job, if this hub has it, that the client wants it to end.
func (rs *Runs) Cancel(key string) {
	if r := rs.Get(key); r != nil {
		r.parting.unwant()
		r.mail.put(runEvent{kind: cancelAsked})
	}
}

// Withdraw is Cancel for a job that its client has withdrawn: nobody is told about its run
// any more.
func (rs *Runs) Withdraw(key string) {
	if r := rs.Get(key); r != nil {
		r.parting.silently.Store(true)
		r.parting.unwant()
		r.mail.put(runEvent{kind: withdrawAsked})
	}
}

// seize gives an adopted run the connection. Two runs can be adopted at one instance, and the one
// waiting there may come first. The dispatcher may also hold the connection for a moment, only to
// find that the queue does not let it give the instance a second job.
func (rs *Runs) seize(ctx context.Context, conn *instance.Link, r *Run, within time.Duration) bool {
	until := time.Now().Add(within)
	for !conn.Attach(r.Holder()) && !rs.join(conn, r) {
		if time.Now().After(until) || ctx.Err() != nil {
			return false
		}
		retry.Sleep(ctx, 10*time.Millisecond)
	}
	conn.Show(r.Holder())
	return true
}

// join puts an adopted run behind the one that has the connection.
func (rs *Runs) join(conn *instance.Link, r *Run) bool {
	current := conn.Running()
	return current != nil && rs.Get(current.Job().Key).Holder() == current && conn.AttachAhead(r.Holder())
}

// TakesPart reports whether an instance may make a part of a job: it is like the one that makes the first.
// One with another GPU rounds otherwise and takes another time, and a custom node in place of one of
// ComfyUI's may do anything. Parts are left to the hub that follows their job.
func (rs *Runs) TakesPart(parent string, conn *instance.Link) bool {
	whole := rs.Get(parent)
	return whole != nil && whole.d.Reports.Gpu(whole.Lease().Instance) == whole.d.Reports.Gpu(conn.Name) && whole.demands.Load().metBy(conn)
}

// Claims reports whether this hub is still asking for a run. It gets the run with the answer, and
// must not take it over from itself.
func (rs *Runs) Claims(held job.Run) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.doubtful[held.Upstream]
}
