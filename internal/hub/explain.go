package hub

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Explanation tells why a job waits, or where it is.
type Explanation struct {
	// Job has the reason in plain words.
	Job JobView
	// Candidates are what speaks for or against each instance, for a job that
	// waits.
	Candidates []Candidate
}

// Candidate is an instance, whether it could run a job, and why.
type Candidate = dispatch.Candidate

// Explain tells what is known of the viewer's newest job of an id. What cannot
// be read now is left out: half an explanation is better than none. The error may
// be ErrNoJob.
func (s *Insight) Explain(ctx context.Context, v Viewer, id string) (Explanation, error) {
	j, err := s.queue.Find(ctx, v.Tenant, id)
	if err != nil {
		return Explanation{}, err
	}
	var candidates []Candidate
	j, position := j.Seen(), -1
	switch j.State {
	case job.Queued:
		position = s.position(ctx, j)
		if needs, ok := s.needs(ctx, j); ok {
			candidates, j.Reason = s.dispatch.Candidates(needs, j.Key), s.waitsFor(ctx, j, needs)
		}
	case job.Leased, job.Running:
		j.Reason = "it is being run by " + j.Run.Instance
	default:
	}
	clean := s.withoutAddresses(v)
	for n := range candidates {
		candidates[n].Why = clean(candidates[n].Why)
	}
	if j.Paused {
		j.Reason = pausedReason
		return Explanation{Job: view(j, -1, -1, clean), Candidates: candidates}, nil
	}
	return Explanation{Job: view(j, position, s.dispatch.Outlook(ctx, j).ETA(j, position), clean), Candidates: candidates}, nil
}
