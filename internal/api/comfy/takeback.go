package comfy

import (
	"context"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
)

// A client that knows one ComfyUI takes every prompt of its own but the first
// for one that waits, though the hub runs several at once. What such a client
// deletes must go, whether it waits or runs: see [shown.of]. Of a running prompt that
// is taken back its client hears nothing, as of a waiting one that is deleted, but
// the history says how it ended: to others it was listed as running.

// cancels answers the routes that take prompts back.
type cancels struct {
	shared

	shown shown
	// lately is what callers have just deleted, cleared and interrupted.
	lately lately
}

// addRoutes adds the routes that take prompts back.
func (c *cancels) addRoutes(t *api.Router) {
	t.Both("POST /queue", c.postQueue)
	t.Both("POST /interrupt", c.postInterrupt)
	// As written, and once more below /api; there is no bare /jobs.
	t.Both("POST /api/jobs/cancel", c.postJobsCancel)
	t.Both("POST /api/jobs/*/cancel", c.postJobCancel)
}

// postQueue answers POST /queue: {"clear": true} and {"delete": [ids]}. Both
// are about what waits, or would wait if there were one ComfyUI; clear only
// about the caller's own.
func (c *cancels) postQueue(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	order, ok := readOrder(c.Requests, w, r, a)
	if !ok {
		return
	}
	a.SetClient(order.client)
	if err := c.takeBackAll(r.Context(), a, order); err != nil {
		c.Fail(w, r, err)
		return
	}
	api.WriteEmpty(w, http.StatusOK)
}

// takeBackAll does what POST /queue asks for.
func (c *cancels) takeBackAll(ctx context.Context, a api.Requester, o order) error {
	t := takeback{cancels: c, requester: a, behind: c.lately.behind(a), strict: len(o.delete) > 1 && a.Page}
	if o.clear {
		if err := t.clear(ctx); err != nil {
			return err
		}
	}
	var err error
	if t.newest, err = c.hub().Jobs.FindAll(ctx, a.Tenant, o.delete); err != nil {
		return err
	}
	for _, id := range o.delete {
		if err := t.name(ctx, id); err != nil {
			return err
		}
	}
	return t.remove(ctx)
}

// takeback is one POST /queue.
type takeback struct {
	*cancels

	requester api.Requester
	// behind were the caller's others when it interrupted what it was shown, a
	// moment ago. The next of them is shown by now, and was waiting to the
	// caller's mind.
	behind []string
	// strict leaves out what is not the caller's own: pages send the ids of
	// everything that they list.
	strict bool
	// byID are the tenant's jobs by id, the waiting ones first; nil until they are
	// needed.
	byID map[string]job.Job
	// newest are the newest jobs of the ids that are to be deleted.
	newest map[string]job.Job
	// waiting are the waiting jobs to remove, named the keys of those that were named.
	waiting []job.Job
	named   []string
}

// clear takes back what of the caller's own waits. What runs without being shown
// is taken back only together with a bare interrupt: the listing says that it
// runs, unless it follows one ComfyUI's.
func (t *takeback) clear(ctx context.Context) error {
	own, err := t.live(ctx, t.requester)
	if err != nil {
		return err
	}
	shown := t.shown.of(own)
	var running []string
	for _, j := range own {
		switch {
		case j.State == job.Queued:
			t.waiting = append(t.waiting, j)
		case slices.Contains(t.behind, j.Key), t.requester.QueueOne && !shown[j.Key]:
			if err := t.takeBackOrStop(ctx, t.requester, j, shown[j.Key]); err != nil {
				return err
			}
		default:
			running = append(running, j.Key)
		}
	}
	t.lately.clear(t.requester, running)
	return nil
}

// name takes back the job of an id: one that waits, or would at one ComfyUI.
// One that would run there goes on, and is what a bare interrupt then means.
func (t *takeback) name(ctx context.Context, id string) error {
	j, err := t.find(ctx, id)
	if err != nil || j.Key == "" || t.strict && !t.owns(t.requester, j) {
		return err
	}
	if j.State == job.Queued {
		t.waiting, t.named = append(t.waiting, j), append(t.named, j.Key)
		return nil
	}
	return t.nameRunning(ctx, j)
}

// find is the job of an id that waits, else one that runs, else a zero one. The
// newest is found at once, an older one only if the id was used twice.
func (t *takeback) find(ctx context.Context, id string) (job.Job, error) {
	j := t.newest[id]
	if j.Key == "" || j.State == job.Queued {
		return j, nil
	}
	if t.byID == nil { // once for all ids: clients send those of ended jobs by the thousand
		all, err := t.hub().Jobs.Live(ctx, t.requester.Tenant)
		if err != nil {
			return job.Job{}, err
		}
		t.byID = make(map[string]job.Job, len(all))
		for _, other := range all {
			if known, ok := t.byID[other.ID]; !ok || known.State != job.Queued {
				t.byID[other.ID] = other
			}
		}
	}
	if other, ok := t.byID[id]; ok && (other.State == job.Queued || j.State.Ended()) {
		return other, nil
	}
	if j.State.Ended() {
		return job.Job{}, nil
	}
	return j, nil
}

func (t *takeback) nameRunning(ctx context.Context, j job.Job) error {
	shown, err := t.shown.sees(ctx, j)
	if err != nil {
		return err
	}
	if !shown || slices.Contains(t.behind, j.Key) {
		return t.takeBackOrStop(ctx, t.requester, j, shown)
	}
	if t.requester.QueueOne {
		switch listed, err := t.shown.listedRunning(ctx, t.requester); {
		case err != nil:
			return err
		case listed != j.Key:
			return t.hub().Canceller.Stop(ctx, j) // to this caller it was listed as waiting
		}
	}
	t.lately.name(t.requester, j.Key)
	return nil
}

// remove takes the waiting jobs out of the queue.
func (t *takeback) remove(ctx context.Context) error {
	if len(t.waiting) == 0 {
		return nil
	}
	gone, err := t.hub().Canceller.CancelWaiting(ctx, t.waiting...)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(t.named, func(key string) bool { return gone[key] })
	if len(left) == 0 {
		return nil
	}
	taken, err := t.hub().Jobs.Running(ctx, left) // instances took them meanwhile
	if err != nil {
		return err
	}
	for _, j := range taken {
		if err := t.nameRunning(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// takeBackOrStop ends a running job: without a message, unless its client sees it
// run, and with an entry in the history if the requester's listing says that it runs.
func (c *cancels) takeBackOrStop(ctx context.Context, a api.Requester, j job.Job, shown bool) error {
	if shown {
		return c.hub().Canceller.Stop(ctx, j)
	}
	return c.hub().Canceller.Withdraw(ctx, j, !a.QueueOne)
}

// live are the waiting and running jobs of the requester's own.
func (c *cancels) live(ctx context.Context, a api.Requester) ([]job.Job, error) {
	return c.hub().Jobs.LiveOf(ctx, a.Tenant, c.Recent.Owner(a))
}

// owns reports whether a job is the requester's own.
func (c *cancels) owns(a api.Requester, j job.Job) bool {
	return c.Recent.Owner(a).Has(j)
}
