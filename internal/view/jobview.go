package view

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// maxEndedJobs bounds the ended jobs of Jobs.
const maxEndedJobs = 200

// JobView is a job as a viewer may see it: its reason and its losses contain no address that the
// viewer may not learn.
type JobView struct {
	job.Job
	// Position is the place in the queue, counting from 0; -1 for a job that is not waiting or
	// whose place is unknown.
	Position int
	// ETA is how long it will take until the job is finished, -1 if unknown.
	ETA time.Duration
	// Begins is how long it will take until a waiting job begins, -1 if unknown.
	Begins time.Duration
}

// view returns a job without the addresses that its viewer may not learn.
func view(j job.Job, position int, eta time.Duration, clean func(string) string) JobView {
	j.Reason = clean(j.Reason)
	lost := make([]string, len(j.Lost))
	for n, line := range j.Lost {
		lost[n] = clean(line)
	}
	j.Lost = lost
	return JobView{Job: j, Position: position, ETA: eta, Begins: -1}
}

// Jobs returns the viewer's own jobs: what is running and waiting, then what has ended, the newest
// first and at most maxEndedJobs of it.
func (s *Insight) Jobs(ctx context.Context, v Viewer) ([]JobView, error) {
	live, err := s.Queue.Live(ctx, v.Tenant)
	if err != nil {
		return nil, err
	}
	clean := s.WithoutAddresses(v)
	out := s.views(ctx, live, clean)
	limit := maxEndedJobs
	ended, err := s.Queue.Ended(ctx, v.Tenant, queue.Page{Max: &limit})
	if err != nil {
		return nil, err
	}
	for n := range ended {
		out = append(out, view(ended[len(ended)-1-n].Job, -1, -1, clean))
	}
	return out, nil
}

// views returns running and waiting jobs.
func (s *Insight) views(ctx context.Context, live []job.Job, clean func(string) string) []JobView {
	var out []JobView
	outlook := s.Dispatch.Forecasts.From(ctx, live...)
	live = seen(live)
	for n, position := range s.Positions(ctx, live...) {
		j := live[n]
		if j.Paused {
			out = append(out, view(j, -1, -1, clean))
			continue
		}
		if j.State == job.Queued {
			j.Reason = s.Dispatch.Waiting.Lacks(j.Class)
		}
		out = append(out, foreseen(view(j, position, s.eta(outlook, j, -1), clean), outlook, s.Stops))
	}
	return out
}

// findFor returns a viewer's newest job with an id, or the one with that key; an operator finds
// everybody's by their keys. The error may be ErrNoJob.
func findFor(ctx context.Context, q *queue.Queue, v Viewer, id string) (job.Job, error) {
	j, err := q.FindOrGet(ctx, v.Tenant, id)
	if v.Operator && errors.Is(err, ErrNoJob) {
		return q.FindOrGet(ctx, "", id)
	}
	return j, err
}

// Job returns a job as findFor does; the reason of a waiting one says what it is waiting for. The error
// may be ErrNoJob.
func (s *Insight) Job(ctx context.Context, v Viewer, id string) (JobView, error) {
	j, err := findFor(ctx, s.Queue, v, id)
	if err != nil {
		return JobView{}, err
	}
	return s.Whole(ctx, j, s.WithoutAddresses(v)), nil
}

// Whole returns everything that a viewer of a job may see of it.
func (s *Insight) Whole(ctx context.Context, j job.Job, clean func(string) string) JobView {
	if j.Paused {
		j.Reason = pausedReason
		return view(j, -1, -1, clean)
	}
	j, position := j.Seen(), -1
	if j.State == job.Queued {
		position = s.Positions(ctx, j)[0]
		if needs, ok := s.needs(ctx, j); ok {
			j.Reason = s.waitsFor(ctx, j, needs)
		}
	}
	outlook := s.Dispatch.Forecasts.From(ctx, j)
	return foreseen(view(j, position, s.eta(outlook, j, position), clean), outlook, s.Stops)
}

// foreseen adds when a waiting job begins.
func foreseen(v JobView, o *dispatch.Outlook, stops Stops) JobView {
	if begin, ok := o.Begin(v.Key); ok && v.State == job.Queued && !stops.Holds(v.Tenant) {
		v.Begins = begin
	}
	return v
}

// eta returns how long it will take until a job is finished; -1 if unknown, for example because it
// is waiting for the operator.
func (s *Insight) eta(o *dispatch.Outlook, j job.Job, position int) time.Duration {
	if j.State == job.Queued && s.Stops.Holds(j.Tenant) {
		return -1
	}
	return o.ETA(j, position)
}

// Positions returns the places of jobs, -1 for each that does not wait or whose place is unknown.
func (s *Insight) Positions(ctx context.Context, jobs ...job.Job) []int {
	positions, err := s.Queue.Positions(ctx, jobs...)
	if err != nil {
		return slices.Repeat([]int{-1}, len(jobs))
	}
	return positions
}

// needs returns what a waiting job requires of an instance; false if unknown.
func (s *Insight) needs(ctx context.Context, j job.Job) (catalog.Requirements, bool) {
	body, err := s.Queue.Body(ctx, j.Key)
	if err != nil {
		return catalog.Requirements{}, false
	}
	needs, err := catalog.DecodeRequirements(body.Requires)
	return needs, err == nil
}
