package view

import (
	"context"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/job"
)

// pausedReason says why a paused job is waiting.
const pausedReason = "it is paused; its owner can resume it"

// Explanation tells why a job is waiting, or where it is.
type Explanation struct {
	// Job has the reason in plain words.
	Job JobView
	// Ahead are the jobs before a waiting one, as many as Job.Position says; nil if unknown.
	Ahead *Ahead
	// Candidates are what speaks for or against each instance, for a waiting job.
	Candidates []Candidate
}

// Ahead is the jobs before a waiting one.
type Ahead struct {
	// Own are the prompt ids of those of the same tenant, in order.
	Own []string
	// Others is how many belong to other tenants.
	Others int
}

// Candidate is an instance, whether it could run a job, and why.
type Candidate = dispatch.Candidate

// Explain returns what is known about a job, found as for Job. What cannot be read now
// is left out: half an explanation is better than none. The error may be ErrNoJob.
func (s *Insight) Explain(ctx context.Context, v Viewer, id string) (Explanation, error) {
	j, err := findFor(ctx, s.Queue, v, id)
	if err != nil {
		return Explanation{}, err
	}
	clean, outlook := s.WithoutAddresses(v), s.Dispatch.Forecasts.From(ctx, j)
	e, position := Explanation{}, -1
	switch j = j.Seen(); {
	case j.State == job.Queued:
		if needs, ok := s.needs(ctx, j); ok {
			e.Candidates, j.Reason = outlook.Candidates(j, needs), s.waitsFor(ctx, j, needs)
		}
		if j.Paused {
			j.Reason = pausedReason
			break
		}
		position = s.Positions(ctx, j)[0]
		if own, ok := outlook.Before(j); ok && position >= len(own) {
			e.Ahead = &Ahead{Own: own, Others: position - len(own)}
		}
	case j.State == job.Leased, j.State == job.Running:
		j.Reason = "it is being run by " + j.Run.Instance
		if j.Why != "" {
			j.Reason += ": " + j.Why
		}
	}
	for n := range e.Candidates {
		c := &e.Candidates[n]
		switch c.Why = clean(c.Why); {
		case !s.SeesAll(v):
			c.Reserved, c.Cause = nil, ""
		case len(c.Reserved) > 0:
			c.Why += ": " + strings.Join(c.Reserved, ", ")
		case c.Cause != "":
			c.Why += ": " + c.Cause
		}
	}
	eta := time.Duration(-1)
	if !j.Paused {
		eta = s.eta(outlook, j, position)
	}
	e.Job = view(j, position, eta, clean)
	return e, nil
}
