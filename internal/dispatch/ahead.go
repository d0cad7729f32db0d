package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// With Settings.Ahead, an instance that is running a job is given the next one if no idle instance
// could run it. ComfyUI starts it by itself when the first one ends. Until then it can be taken
// back from ComfyUI's own queue into the hub's.

// takesAhead reports whether the connection can take a job behind its run. On older servers an
// interrupt stops whatever is running, so one meant for the run could hit the job that has just
// begun behind it. The caller holds the lock.
func (conn *connection) takesAhead() bool {
	return conn.version.InterruptByID() && conn.open && conn.current != nil && conn.begun == conn.current && conn.ahead == nil && conn.info != nil
}

// runs returns the current run and the one that waits behind it. Either may be nil.
func (conn *connection) runs() [2]*run {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return [...]*run{conn.current, conn.ahead}
}

// ranFor returns how long the instance has been executing a run; false if it has not
// begun.
func (conn *connection) ranFor(r *run, now time.Time) (ran time.Duration, began bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return max(now.Sub(conn.began), 0), conn.begun == r
}

// has reports whether a queue item is one of the runs of this connection.
func (conn *connection) has(item comfyui.QueueItem) bool {
	for _, r := range conn.runs() {
		// The mark of another run cannot be read here, so any attempt at the job will do.
		if r != nil && (item.ID == r.lease().Upstream || item.Mark.Job == r.job().Key) {
			return true
		}
	}
	return false
}

// attachAhead is attach for a run that waits behind the current one.
func (conn *connection) attachAhead(r *run) bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.current == nil || conn.ahead != nil {
		return false
	}
	conn.ahead = r
	conn.changed()
	return true
}

// moveUp ends the current run's turn. The caller holds the lock.
func (conn *connection) moveUp() {
	if conn.begun == conn.current {
		conn.begun = nil
	}
	conn.current, conn.ahead = conn.ahead, nil
	conn.changed()
	if next := conn.current; next != nil {
		conn.fleet.SetRunning(conn.name, next.job().ID)
		next.mail.put(runEvent{kind: movedUp})
	} else {
		conn.fleet.SetRunning(conn.name, "")
	}
}

// isAhead reports whether the run is waiting at its instance behind another one.
func (r *run) isAhead() bool {
	if r.conn == nil {
		return false
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.conn.ahead == r
}

// begun notes that the instance is executing the run, so that the next one may follow.
func (r *run) begun() {
	if r.conn == nil {
		return
	}
	r.conn.mu.Lock()
	r.conn.begun, r.conn.began = r, time.Now()
	r.conn.changed()
	r.conn.mu.Unlock()
	if j := r.job(); j.Ahead {
		r.load()
		r.d.observe.Dispatched(r.conn.name, r.d.notices.age(j), 0)
	}
	if r.d.settings().Ahead {
		r.d.signal.freed()
	}
}

// askBack asks the run to leave its instance if it is still waiting there.
func (r *run) askBack() {
	if r.recalled.CompareAndSwap(false, true) {
		r.mail.put(runEvent{kind: takeBackAsked})
	}
}

// unload removes the prompt from its instance if it is waiting there behind another run, and
// reports whether it is certain not to run.
func (r *run) unload(ctx context.Context) bool {
	return r.phase == posted && r.isAhead() && r.removed(ctx)
}

// removed removes a waiting prompt from its instance, and reports whether it has certainly not
// begun.
func (r *run) removed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.conn.client.DeleteQueued(ctx, r.lease().Upstream); err != nil {
		return false
	}
	left, err := r.conn.client.Queue(ctx)
	if err != nil || slices.ContainsFunc(append(left.Running, left.Pending...), r.is) {
		return false // it has just begun, or there is no telling
	}
	// It may have begun and ended before the delete. The history is read last, so if it is in
	// neither place, it never ran.
	found, err := r.conn.client.HasEnded(ctx, r.lease().Upstream)
	return err == nil && !found
}

// giveBack returns a job that was taken back to its old place in the queue.
func (r *run) giveBack(ctx context.Context) {
	r.log.Info("job taken back from an instance")
	r.lose()
	r.free()
	err := r.retry(ctx, "give back", func(ctx context.Context) error {
		_, err := r.d.queue.Requeue(ctx, r.lease(), queue.RequeueOptions{Unused: true})
		return err
	})
	switch {
	case err == nil:
		r.phase = ended
		r.trace.Outcome("unused", false)
		if r.stop.cause == evicted {
			r.retried(Evicted)
		}
	case errors.Is(err, queue.ErrCancelled):
		r.finish(ctx, cancelEnding(r.job(), r.body, time.Now()))
	}
	r.d.signal.Wake()
}
