package hub

import (
	"context"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// postInterrupt answers POST /interrupt. With a prompt_id it stops that job if
// it runs; without one it stops one job of the caller, never anybody else's.
func (h *Hub) postInterrupt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := h.requests.ReadBody(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	id := ""
	if v, err := pyjson.Parse(body); err == nil {
		o, isObject := v.(*pyjson.Object)
		if !isObject {
			api.WriteInternalError(w, r)
			return
		}
		id = o.String("prompt_id")
		a.SetClient(o.String("client_id"))
		if p, _ := o.Get("prompt_id"); id == "" && python.Bool(p) {
			api.WriteEmpty(w, http.StatusOK) // an id that cannot be anybody's
			return
		}
	}
	var err error
	if id == "" {
		err = h.interruptBare(r.Context(), a)
	} else {
		err = h.interruptNamed(r.Context(), a, id)
	}
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	api.WriteEmpty(w, http.StatusOK)
}

func (h *Hub) interruptNamed(ctx context.Context, a api.Requester, id string) error {
	j, err := h.running(ctx, a.Tenant, id)
	if err != nil || j.Key == "" {
		return err
	}
	return h.stop(ctx, j)
}

// interruptBare stops what an interrupt without an id means: what a delete of
// the same caller has just named; else, just after a clear, all that ran then;
// else the job that the caller is being shown, or its longest-running.
func (h *Hub) interruptBare(ctx context.Context, a api.Requester) error {
	own, err := h.liveOfCaller(ctx, a)
	if err != nil {
		return err
	}
	running := slices.DeleteFunc(slices.Clone(own), func(j job.Job) bool { return j.State == job.Queued })
	shown := h.shownOf(running)
	targets, err := h.interruptTargets(ctx, a, running, shown)
	if err != nil {
		return err
	}
	meant := map[string]bool{}
	for _, j := range targets {
		meant[j.Key] = true
		// One of the caller's own that is not shown would have waited, and so have
		// been cleared.
		visible := shown[j.Key] || !slices.ContainsFunc(running, func(o job.Job) bool { return o.Key == j.Key })
		if err := h.takeBackOrStop(ctx, j, visible); err != nil {
			return err
		}
	}
	var behind []string
	for _, j := range own {
		if !shown[j.Key] && !meant[j.Key] {
			behind = append(behind, j.Key)
		}
	}
	h.lately.interrupt(a, behind)
	return nil
}

// interruptTargets picks the jobs that a bare interrupt means, see
// interruptBare.
func (h *Hub) interruptTargets(ctx context.Context, a api.Requester, running []job.Job, shown map[string]bool) ([]job.Job, error) {
	cleared := h.lately.cleared(a)
	targets := slices.DeleteFunc(slices.Clone(running), func(j job.Job) bool { return !slices.Contains(cleared, j.Key) })
	if named := h.lately.named(a); len(named) > 0 {
		jobs, err := h.queue.GetAll(ctx, named) // a delete may name those of others
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			runs := j.State == job.Leased || j.State == job.Running
			if runs && !j.Withdrawn && !slices.ContainsFunc(targets, func(t job.Job) bool { return t.Key == j.Key }) {
				targets = append(targets, j)
			}
		}
	}
	if len(targets) > 0 || len(running) == 0 {
		return targets, nil
	}
	return []job.Job{slices.MinFunc(running, func(x, y job.Job) int {
		if c := rankOf(shown[x.Key]) - rankOf(shown[y.Key]); c != 0 {
			return c
		}
		if before(x, y) {
			return -1
		}
		return 1
	})}, nil
}

// running is the running job of an id, or a zero one.
func (h *Hub) running(ctx context.Context, tenant, id string) (job.Job, error) {
	j, err := h.jobs.Find(ctx, tenant, id)
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
