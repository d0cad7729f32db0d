package view

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// MaxJobsPage bounds JobsPage.Limit.
const MaxJobsPage = 1000

// Which jobs a JobsPage is of.
const (
	// PageAll is what Jobs lists: what is running and waiting in the order of the queue, then what
	// has ended.
	PageAll = ""
	// PageRunning are the jobs that instances have.
	PageRunning = "running"
	// PageQueued are the jobs that are waiting for an instance, without paused ones.
	PageQueued = "queued"
	// PageEnded are the last maxEndedJobs that have ended, the newest first.
	PageEnded = "ended"
)

// JobsPage selects a part of what [Insight.Jobs] lists. Its cost depends on the jobs in the part,
// however long the queue is.
type JobsPage struct {
	// Which is one of the constants above.
	Which string
	// Offset is 0 or more, Limit from 1 to MaxJobsPage.
	Offset, Limit int
}

// JobsPage returns a part of a viewer's own jobs.
func (s *Insight) JobsPage(ctx context.Context, v Viewer, p JobsPage) ([]JobView, error) {
	return s.Page(ctx, v.Tenant, p, s.WithoutAddresses(v))
}

// Page returns a part of a tenant's jobs; with "", of everybody's running and waiting ones.
func (s *Insight) Page(ctx context.Context, tenant string, p JobsPage, clean func(string) string) ([]JobView, error) {
	live, err := s.livePage(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	out := s.views(ctx, live, clean)
	if tenant == "" || p.Which != PageEnded && (p.Which != PageAll || len(live) == p.Limit) {
		return out, nil
	}
	skip := p.Offset
	if p.Which == PageAll {
		total, _, err := s.Queue.CountOf(ctx, tenant)
		if err != nil {
			return nil, err
		}
		if skip = max(p.Offset-total, 0); p.Offset < total && len(live) == 0 {
			return out, nil // its jobs have just ended
		}
	}
	limit := min(skip+p.Limit-len(live), maxEndedJobs)
	if limit <= skip {
		return out, nil
	}
	ended, err := s.Queue.Ended(ctx, tenant, queue.Page{Max: &limit})
	if err != nil {
		return nil, err
	}
	for n := skip; n < len(ended); n++ {
		out = append(out, view(ended[len(ended)-1-n].Job, -1, -1, clean))
	}
	return out, nil
}

// livePage reads the part of a page that is running or waiting.
func (s *Insight) livePage(ctx context.Context, tenant string, p JobsPage) ([]job.Job, error) {
	switch p.Which {
	case PageRunning:
		jobs, err := s.Queue.Held(ctx, tenant)
		jobs = jobs[min(p.Offset, len(jobs)):]
		return jobs[:min(p.Limit, len(jobs))], err
	case PageQueued:
		return s.Queue.WaitingPage(ctx, tenant, p.Offset, p.Limit)
	case PageEnded:
		return nil, nil
	}
	return s.Queue.LivePage(ctx, tenant, p.Offset, p.Limit)
}
