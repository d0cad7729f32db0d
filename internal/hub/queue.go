package hub

import (
	"context"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// getQueue answers GET /queue: what runs and what waits, over the whole fleet.
// The caller's own come first, because scripts look at queue_running[0].
func (h *Hub) getQueue(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	jobs, err := h.queue.Live(r.Context(), a.tenant)
	if err != nil {
		h.fault(w, r, err)
		return
	}
	mine := h.callersOf(a)
	slices.SortStableFunc(jobs, func(x, y job.Job) int {
		return rankOf(slices.Contains(mine, x.Caller)) - rankOf(slices.Contains(mine, y.Caller))
	})
	var running, pending []job.Job
	for _, j := range jobs {
		if j.State == job.Queued {
			pending = append(pending, j)
		} else {
			running = append(running, j)
		}
	}
	list := h.newListing(a)
	defer list.close()
	list.text(`{"queue_running": `)
	err = list.tuples(r.Context(), running)
	if err == nil {
		list.text(`, "queue_pending": `)
		err = list.tuples(r.Context(), pending)
	}
	list.text("}")
	list.answer(w, r, err)
}

func rankOf(mine bool) int {
	if mine {
		return 0
	}
	return 1
}

// postQueue answers POST /queue: {"clear": true} and {"delete": [ids]}. Both
// touch waiting jobs only, and clear only those of the caller.
func (h *Hub) postQueue(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	order, ok := h.readOrder(w, r, a)
	if !ok {
		return
	}
	a.names(order.client)
	var keys []string
	if order.clear {
		for _, caller := range h.callersOf(a) {
			jobs, err := h.queue.LiveOf(r.Context(), caller)
			if err != nil {
				h.fault(w, r, err)
				return
			}
			for _, j := range jobs {
				keys = append(keys, j.Key)
			}
		}
	}
	for _, id := range order.delete {
		h.named.note(a, id)
		key, err := h.waiting(r.Context(), a.tenant, id)
		if err != nil {
			h.fault(w, r, err)
			return
		}
		if key != "" {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		if _, err := h.queue.CancelWaiting(r.Context(), keys); err != nil {
			h.fault(w, r, err)
			return
		}
		h.streams.StatusChanged()
	}
	writeEmpty(w, http.StatusOK)
}

// waiting is the key of the waiting job of an id, or "". The newest of an id
// is found at once; an older one only if the id was used twice.
func (h *Hub) waiting(ctx context.Context, tenant, id string) (string, error) {
	j, err := h.find(ctx, tenant, id)
	if err != nil || j.Key == "" {
		return "", err
	}
	if j.State == job.Queued {
		return j.Key, nil
	}
	jobs, err := h.queue.Live(ctx, tenant)
	for _, j := range jobs {
		if j.ID == id && j.State == job.Queued {
			return j.Key, err
		}
	}
	return "", err
}

// order is the body of POST /queue and POST /history.
type order struct {
	clear  bool
	delete []string
	client string
}

// readOrder reads such a body as ComfyUI's Python does: what would throw there
// is answered 500 here, and what would be ignored there is ignored.
func (h *Hub) readOrder(w http.ResponseWriter, r *http.Request, a asker) (order, bool) {
	v, done, ok := h.readJSON(w, r, a, listBody)
	if !ok {
		return order{}, false
	}
	defer done()
	var o order
	switch v := v.(type) {
	case *pyjson.Object:
		c, _ := v.Get("clear")
		o.clear, o.client = truthy(c), v.String("client_id")
		if !v.Has("delete") {
			break
		}
		switch ids, _ := v.Get("delete"); ids := ids.(type) {
		case pyjson.Array:
			for _, id := range ids {
				if s, ok := id.(pyjson.String); ok && len(s) <= maxName { // no job has a longer one
					o.delete = append(o.delete, string(s))
				}
			}
		case *pyjson.Object, pyjson.String: // iterable; names nothing
		default:
			writeTrouble(w, r)
			return order{}, false
		}
	case pyjson.Array, pyjson.String: // no members: nothing to do
	default:
		writeTrouble(w, r)
		return order{}, false
	}
	return o, true
}

// postInterrupt answers POST /interrupt. With a prompt_id it stops that job if
// it runs; without one it stops one job of the caller, never anybody else's.
func (h *Hub) postInterrupt(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	body, done, ok := h.readBody(w, r, a, smallBody)
	if !ok {
		return
	}
	defer done()
	id := ""
	if v, err := pyjson.Parse(body); err == nil {
		o, isObject := v.(*pyjson.Object)
		if !isObject {
			writeTrouble(w, r)
			return
		}
		id = o.String("prompt_id")
		a.names(o.String("client_id"))
		if p, _ := o.Get("prompt_id"); id == "" && truthy(p) {
			writeEmpty(w, http.StatusOK) // an id that cannot be anybody's
			return
		}
	}
	target, err := h.interruptTarget(r.Context(), a, id)
	if err != nil {
		h.fault(w, r, err)
		return
	}
	if target.Key != "" {
		if err := h.stop(r.Context(), target); err != nil {
			h.fault(w, r, err)
			return
		}
	}
	writeEmpty(w, http.StatusOK)
}

// interruptTarget picks the job that an interrupt means: the one named; else
// the one that a delete of the same caller has just named; else the one whose
// messages the caller is being shown; else its longest-running.
func (h *Hub) interruptTarget(ctx context.Context, a asker, id string) (job.Job, error) {
	if id != "" {
		return h.running(ctx, a.tenant, id)
	}
	if named := h.named.recent(a); named != "" {
		if j, err := h.running(ctx, a.tenant, named); err != nil || j.Key != "" {
			return j, err
		}
	}
	var best job.Job
	for _, caller := range h.callersOf(a) {
		jobs, err := h.queue.LiveOf(ctx, caller)
		if err != nil {
			return job.Job{}, err
		}
		for _, j := range jobs {
			if j.State == job.Queued || j.Tenant != a.tenant {
				continue
			}
			if shown, ok := h.streams.Showing(stream.Key{Tenant: j.Tenant, Client: j.Client}); ok && shown == j.ID {
				return j, nil
			}
			if best.Key == "" || began(j) < began(best) {
				best = j
			}
		}
	}
	return best, nil
}

// began orders running jobs by their start; one that is only claimed comes last.
func began(j job.Job) int64 {
	if j.StartedAt == 0 {
		return 1<<62 + j.CreatedAt
	}
	return j.StartedAt
}

// running is the running job of an id, or a zero one.
func (h *Hub) running(ctx context.Context, tenant, id string) (job.Job, error) {
	j, err := h.find(ctx, tenant, id)
	if err != nil || j.State == job.Leased || j.State == job.Running {
		return j, err
	}
	jobs, err := h.queue.Live(ctx, tenant)
	for _, j := range jobs {
		if j.ID == id && j.State != job.Queued {
			return j, err
		}
	}
	return job.Job{}, err
}

// stop interrupts a job wherever it is.
func (h *Hub) stop(ctx context.Context, j job.Job) error {
	result, err := h.queue.Cancel(ctx, j.Key)
	if err != nil {
		return ignoreNotFound(err)
	}
	if result.Was == job.Queued {
		// It was lost and requeued between the look and the cancel; it is out
		// of the queue now and its client must hear of it all the same.
		h.dispatch.Interrupted(j)
	}
	h.dispatch.CancelRun(j.Key)
	h.streams.StatusChanged(j.Caller)
	return nil
}
