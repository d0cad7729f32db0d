package hub

import (
	"context"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// A client that knows one ComfyUI takes every prompt of its own but the first
// for one that waits, though the hub runs several at once. What such a client
// deletes must go, whether it waits or runs: see shownOf. A running prompt that
// is taken back leaves no trace, like a waiting one that is deleted.

// TakeBack does what POST /queue asks for: to clear all, and to delete some ids.
func (h *Hub) TakeBack(ctx context.Context, a api.Requester, all bool, ids []string) error {
	t := takeback{hub: h, requester: a, behind: h.lately.behind(a), strict: len(ids) > 1 && a.Page}
	if all {
		if err := t.clear(ctx); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := t.name(ctx, id); err != nil {
			return err
		}
	}
	return t.remove(ctx)
}

// takeback is one POST /queue.
type takeback struct {
	hub       *Hub
	requester api.Requester
	// behind were the caller's others when it interrupted what it was shown, a
	// moment ago. The next of them is shown by now, and was waiting to the
	// caller's mind.
	behind []string
	// strict leaves out what is not the caller's own: pages send the ids of
	// everything that they list.
	strict bool
	// live are the tenant's jobs by id, the waiting ones first; nil until they are
	// needed.
	live map[string]job.Job
	// waiting are the keys of waiting jobs to remove, named the ids that were
	// named for them.
	waiting []string
	named   []string
}

// clear takes back what of the caller's own waits. What runs without being shown
// is taken back only together with a bare interrupt: the listing says that it
// runs, unless it follows one ComfyUI's.
func (t *takeback) clear(ctx context.Context) error {
	own, err := t.hub.liveOfCaller(ctx, t.requester)
	if err != nil {
		return err
	}
	shown := t.hub.shownOf(own)
	var running []string
	for _, j := range own {
		switch {
		case j.State == job.Queued:
			t.waiting = append(t.waiting, j.Key)
		case slices.Contains(t.behind, j.Key), t.requester.QueueOne && !shown[j.Key]:
			if err := t.hub.takeBackOrStop(ctx, j, shown[j.Key]); err != nil {
				return err
			}
		default:
			running = append(running, j.Key)
		}
	}
	t.hub.lately.clear(t.requester, running)
	return nil
}

// name takes back the job of an id: one that waits, or would at one ComfyUI.
// One that would run there goes on, and is what a bare interrupt then means.
func (t *takeback) name(ctx context.Context, id string) error {
	j, err := t.find(ctx, id)
	if err != nil || j.Key == "" || t.strict && !t.hub.owns(t.requester, j) {
		return err
	}
	if j.State == job.Queued {
		t.waiting, t.named = append(t.waiting, j.Key), append(t.named, id)
		return nil
	}
	return t.nameRunning(ctx, j)
}

// find is the job of an id that waits, else one that runs, else a zero one. The
// newest is found at once, an older one only if the id was used twice.
func (t *takeback) find(ctx context.Context, id string) (job.Job, error) {
	j, err := t.hub.jobs.Find(ctx, t.requester.Tenant, id)
	if err != nil || j.Key == "" || j.State == job.Queued {
		return j, err
	}
	if t.live == nil { // once for all ids: clients send those of ended jobs by the thousand
		all, err := t.hub.queue.Live(ctx, t.requester.Tenant)
		if err != nil {
			return job.Job{}, err
		}
		t.live = make(map[string]job.Job, len(all))
		for _, other := range all {
			if known, ok := t.live[other.ID]; !ok || known.State != job.Queued {
				t.live[other.ID] = other
			}
		}
	}
	if other, ok := t.live[id]; ok && (other.State == job.Queued || j.State.Ended()) {
		return other, nil
	}
	if j.State.Ended() {
		return job.Job{}, nil
	}
	return j, nil
}

func (t *takeback) nameRunning(ctx context.Context, j job.Job) error {
	h := t.hub
	shown, err := h.shown(ctx, j)
	if err != nil {
		return err
	}
	if !shown || slices.Contains(t.behind, j.Key) {
		return h.takeBackOrStop(ctx, j, shown)
	}
	if t.requester.QueueOne {
		switch listed, err := h.ListedRunning(ctx, t.requester); {
		case err != nil:
			return err
		case listed != j.Key:
			return h.stop(ctx, j) // to this caller it was listed as waiting
		}
	}
	h.lately.name(t.requester, j.Key)
	return nil
}

// remove takes the waiting jobs out of the queue.
func (t *takeback) remove(ctx context.Context) error {
	if len(t.waiting) == 0 {
		return nil
	}
	h := t.hub
	gone, err := h.queue.CancelWaiting(ctx, t.waiting)
	if err != nil {
		return err
	}
	h.streams.StatusChanged()
	if len(gone) == len(t.waiting) {
		return nil
	}
	for _, id := range t.named { // instances took some of them meanwhile
		j, err := h.running(ctx, t.requester.Tenant, id)
		if err == nil && j.Key != "" {
			err = t.nameRunning(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeBackOrStop ends a running job: without a trace, unless its client sees it
// run. Should the client be shown the job just now, it is told that the prompt
// was interrupted.
func (h *Hub) takeBackOrStop(ctx context.Context, j job.Job, shown bool) error {
	if shown {
		return h.stop(ctx, j)
	}
	result, err := h.queue.Withdraw(ctx, j.Key)
	if err != nil {
		return ignoreNotFound(err)
	}
	if result.Withdrawn {
		h.streams.Drop(stream.Key{Tenant: j.Tenant, Client: j.Client}, j.Key,
			stream.Text(comfyui.ExecutionInterrupted(j.ID, "", "", nil, time.Now())))
		h.dispatch.WithdrawRun(j.Key)
	}
	h.streams.StatusChanged(j.Caller)
	return nil
}

// liveOfCaller are the waiting and running jobs of the requester's own.
func (h *Hub) liveOfCaller(ctx context.Context, a api.Requester) ([]job.Job, error) {
	var own []job.Job
	for _, caller := range h.recent.Callers(a) {
		jobs, err := h.queue.LiveOf(ctx, caller)
		if err != nil {
			return nil, err
		}
		own = append(own, jobs...)
	}
	return slices.DeleteFunc(own, func(j job.Job) bool { return j.Tenant != a.Tenant }), nil
}

// owns reports whether a job is the requester's own.
func (h *Hub) owns(a api.Requester, j job.Job) bool {
	return slices.Contains(h.recent.Callers(a), j.Caller)
}
