package comfy

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
func (c *cancels) postInterrupt(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := c.ReadBody(w, r, a, api.SmallBody)
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
		err = c.interruptBare(r.Context(), a)
	} else {
		err = c.interruptNamed(r.Context(), a, id)
	}
	if err != nil {
		c.Fail(w, r, err)
		return
	}
	api.WriteEmpty(w, http.StatusOK)
}

func (c *cancels) interruptNamed(ctx context.Context, a api.Requester, id string) error {
	j, err := c.hub().Jobs.FindRunning(ctx, a.Tenant, id)
	if err != nil || j.Key == "" {
		return err
	}
	return c.hub().Canceller.Stop(ctx, j)
}

// interruptBare stops what an interrupt without an id means: what a delete of
// the same caller has just named; else, just after a clear, all that ran then;
// else the job that the caller is being shown, or its longest-running.
func (c *cancels) interruptBare(ctx context.Context, a api.Requester) error {
	own, err := c.live(ctx, a)
	if err != nil {
		return err
	}
	running := slices.DeleteFunc(slices.Clone(own), func(j job.Job) bool { return j.State == job.Queued })
	shown := c.shown.of(running)
	targets, err := c.interruptTargets(ctx, a, running, shown)
	if err != nil {
		return err
	}
	meant := map[string]bool{}
	for _, j := range targets {
		meant[j.Key] = true
		// One of the caller's own that is not shown would have waited, and so have
		// been cleared.
		visible := shown[j.Key] || !slices.ContainsFunc(running, func(o job.Job) bool { return o.Key == j.Key })
		if err := c.takeBackOrStop(ctx, a, j, visible); err != nil {
			return err
		}
	}
	var behind []string
	for _, j := range own {
		if !shown[j.Key] && !meant[j.Key] {
			behind = append(behind, j.Key)
		}
	}
	c.lately.interrupt(a, behind)
	return nil
}

// interruptTargets picks the jobs that a bare interrupt means, see
// interruptBare.
func (c *cancels) interruptTargets(ctx context.Context, a api.Requester, running []job.Job, shown map[string]bool) ([]job.Job, error) {
	cleared := c.lately.cleared(a)
	targets := slices.DeleteFunc(slices.Clone(running), func(j job.Job) bool { return !slices.Contains(cleared, j.Key) })
	if named := c.lately.named(a); len(named) > 0 {
		jobs, err := c.hub().Jobs.Running(ctx, named) // a delete may name those of others
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			if !slices.ContainsFunc(targets, func(t job.Job) bool { return t.Key == j.Key }) {
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
