package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// With Settings.Ahead, an instance that is running a job is given the next one if no idle instance
// could run it. ComfyUI starts it by itself when the first one ends. Until then it can be taken
// back from ComfyUI's own queue into the hub's.

// isAhead reports whether the run is waiting at its instance behind another one.
func (r *run) isAhead() bool {
	return r.conn != nil && r.conn.IsAhead(r)
}

// begun notes that the instance is executing the run, so that the next one may follow.
func (r *run) begun() {
	if r.conn == nil {
		return
	}
	r.conn.Begins(r)
	if j := r.Job(); j.Ahead {
		r.load()
		r.d.observe.Dispatched(r.conn.Name, r.d.notices.age(j), 0)
	}
	if r.d.settings().Ahead {
		r.d.signal.Freed()
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
	if err := r.conn.Client.DeleteQueued(ctx, r.lease().Upstream); err != nil {
		return false
	}
	left, err := r.conn.Client.Queue(ctx)
	if err != nil || slices.ContainsFunc(append(left.Running, left.Pending...), r.is) {
		return false // it has just begun, or there is no telling
	}
	// It may have begun and ended before the delete. The history is read last, so if it is in
	// neither place, it never ran.
	found, err := r.conn.Client.HasEnded(ctx, r.lease().Upstream)
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
		r.finish(ctx, cancelEnding(r.Job(), r.body, time.Now()))
	}
	r.d.signal.Wake()
}
