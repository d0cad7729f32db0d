package hub

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// shownOf tells which of the running jobs their clients see run, by key: those
// whose messages a client is being shown, else the client's first. At one
// ComfyUI the client's others would still wait. The jobs should be all of their
// clients'; those without a client id count as one client's for each caller.
func (h *Hub) shownOf(jobs []job.Job) map[string]bool {
	type owner struct{ tenant, client, caller string }
	shown, seen, first := map[string]bool{}, map[owner]bool{}, map[owner]job.Job{}
	for _, j := range jobs {
		if j.State == job.Queued {
			continue
		}
		of := owner{tenant: j.Tenant, client: j.Client}
		if j.Client == "" {
			of.caller = j.Caller
		}
		if h.streams.Shows(stream.Key{Tenant: j.Tenant, Client: j.Client}, j.Key) {
			shown[j.Key], seen[of] = true, true
		}
		if f, ok := first[of]; !ok || before(j, f) {
			first[of] = j
		}
	}
	for of, j := range first {
		if !seen[of] {
			shown[j.Key] = true
		}
	}
	return shown
}

// shown reports whether the client of a running job sees it run.
func (h *Hub) shown(ctx context.Context, j job.Job) (bool, error) {
	jobs, err := h.queue.LiveOf(ctx, j.Caller)
	return h.shownOf(append(jobs, j))[j.Key], err
}

// before orders running jobs by their start; those that are only claimed come
// last.
func before(x, y job.Job) bool {
	if began(x) != began(y) {
		return began(x) < began(y)
	}
	return strings.Compare(x.Rank, y.Rank) < 0
}

func began(j job.Job) int64 {
	if j.StartedAt == 0 {
		return 1<<62 + j.CreatedAt
	}
	return j.StartedAt
}

// oneOf is the running job that one ComfyUI would list as running, of those of
// a tenant: one of the requester's own, if there is any, and one that is shown
// rather than another. It is "" if nothing runs.
func (h *Hub) oneOf(a api.Requester, jobs []job.Job) string {
	mine, shown := h.recent.Callers(a), h.shownOf(jobs)
	rank := func(j job.Job) int {
		return 2*rankOf(slices.Contains(mine, j.Caller)) + rankOf(shown[j.Key])
	}
	var one job.Job
	for _, j := range jobs {
		if j.State == job.Queued {
			continue
		}
		if one.Key == "" || rank(j) < rank(one) || rank(j) == rank(one) && before(j, one) {
			one = j
		}
	}
	return one.Key
}

func rankOf(mine bool) int {
	if mine {
		return 0
	}
	return 1
}

// AsListed gives jobs the states that the requester's listings show: where those
// have one running job only, the others wait.
func (h *Hub) AsListed(a api.Requester, jobs []job.Job) []job.Job {
	if !a.QueueOne {
		return jobs
	}
	one := h.oneOf(a, jobs)
	for n := range jobs {
		if jobs[n].Key != one {
			jobs[n].State = job.Queued
		}
	}
	return jobs
}

// ListedRunning is the key of the job that a site with `queue one` lists as
// running for the requester.
func (h *Hub) ListedRunning(ctx context.Context, a api.Requester) (string, error) {
	jobs, err := h.queue.Live(ctx, a.Tenant)
	return h.oneOf(a, jobs), err
}
