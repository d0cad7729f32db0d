package comfy

import (
	"context"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// shown tells which running jobs clients see run.
type shown struct {
	hub    func() Core
	recent *api.RecentClients
}

// of tells which of the running jobs their clients see run, by key: those
// whose messages a client is being shown, else the client's first. At one
// ComfyUI the client's others would still wait. The jobs should be all of their
// clients'; those without a client id count as one client's for each caller.
func (s shown) of(jobs []job.Job) map[string]bool {
	streams := s.hub().Streams
	out, seen, first := map[string]bool{}, map[job.Requester]bool{}, map[job.Requester]job.Job{}
	for _, j := range jobs {
		if j.State == job.Queued {
			continue
		}
		by := j.Requester
		if j.Client != "" {
			by.Caller = ""
		}
		if streams.Shows(stream.KeyOf(j.Requester), j.Key) {
			out[j.Key], seen[by] = true, true
		}
		if f, ok := first[by]; !ok || before(j, f) {
			first[by] = j
		}
	}
	for by, j := range first {
		if !seen[by] {
			out[j.Key] = true
		}
	}
	return out
}

// sees reports whether the client of a running job sees it run.
func (s shown) sees(ctx context.Context, j job.Job) (bool, error) {
	jobs, err := s.hub().Jobs.LiveOf(ctx, j.Tenant, job.Owner{Callers: []string{j.Caller}})
	return s.of(append(jobs, j))[j.Key], err
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
func (s shown) oneOf(a api.Requester, jobs []job.Job) string {
	mine, shown := s.recent.Owner(a), s.of(jobs)
	rank := func(j job.Job) int {
		return 2*rankOf(mine.Has(j)) + rankOf(shown[j.Key])
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

// rankOf puts what is mine first.
func rankOf(mine bool) int {
	if mine {
		return 0
	}
	return 1
}

// asListed gives jobs the states that the requester's listings show: where those
// have one running job only, the others wait.
func (s shown) asListed(a api.Requester, jobs []job.Job) []job.Job {
	if !a.QueueOne {
		return jobs
	}
	one := s.oneOf(a, jobs)
	for n := range jobs {
		if jobs[n].Key != one {
			jobs[n].State = job.Queued
		}
	}
	return jobs
}

// listedRunning is the key of the job that a site with `queue one` lists as
// running for the requester.
func (s shown) listedRunning(ctx context.Context, a api.Requester) (string, error) {
	jobs, err := s.hub().Jobs.Live(ctx, a.Tenant)
	return s.oneOf(a, jobs), err
}
