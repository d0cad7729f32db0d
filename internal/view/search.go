package view

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// MaxSearched is how many jobs one part of a search looks at.
const MaxSearched = queue.MaxSearched

// ErrCursor is the error of [Finder.Search] for a cursor that no search has returned.
var ErrCursor = queue.ErrCursor

// FoundJobs is a part of what a search finds.
type FoundJobs struct {
	Jobs []JobView
	// Looked is how many jobs were looked at, MaxSearched at most.
	Looked int
	// Next is the cursor of the next part, empty if there is none.
	Next string
}

// Searches bounds how many searches read at the same time. Operators have their own, so that no
// tenant keeps them from looking.
type Searches struct{ tenants, operators *semaphore.Weighted }

const searchesAtOnce = 4

// NewSearches lets a few read at a time.
func NewSearches() Searches {
	return Searches{semaphore.NewWeighted(searchesAtOnce), semaphore.NewWeighted(searchesAtOnce)}
}

// Finder finds jobs, and shows what they were asked. Its errors are as for [Insight].
type Finder struct{ *Insight }

// Search finds up to limit jobs that somebody may see: everybody's for operators, otherwise the
// viewer's own. It begins with those that run and wait, in the order of the queue, then come those that
// have ended, the newest first. Places in the queue are unknown. The error may be ErrCursor.
func (s Finder) Search(ctx context.Context, v Viewer, f job.Filter, cursor string, limit int) (FoundJobs, error) {
	turn := s.Searches.tenants
	if v.Operator {
		turn = s.Searches.operators
	} else {
		f.Tenant = v.Tenant
	}
	if err := turn.Acquire(ctx, 1); err != nil {
		return FoundJobs{}, err
	}
	defer turn.Release(1)
	// What a viewer may not read must not be found either.
	clean := s.WithoutAddresses(v)
	found, err := s.Queue.Search(ctx, f, cursor, limit, func(j job.Job) bool { return f.Has(view(j, -1, -1, clean).Job) })
	if err != nil {
		return FoundJobs{}, err
	}
	out := FoundJobs{Looked: found.Looked, Next: found.Next}
	outlook := s.Dispatch.Forecasts.From(ctx, found.Jobs...)
	jobs := seen(found.Jobs)
	for n, position := range s.Positions(ctx, jobs...) {
		j := jobs[n]
		switch {
		case j.Paused:
			j.Reason = pausedReason
		case j.State == job.Queued:
			j.Reason = s.Dispatch.Waiting.Lacks(j.Class)
		}
		eta := outlook.ETA(j, -1)
		if !running(j) {
			eta = -1
		}
		out.Jobs = append(out.Jobs, view(j, position, eta, clean))
	}
	return out, nil
}

// Prompt reads what a job was asked: the body of a live job, the history entry of an ended one. Of a
// job that was cancelled while it waited there is neither. The job must be from a listing.
func (s Finder) Prompt(ctx context.Context, j job.Job) (job.Body, HistoryEntry, error) {
	if j.State.Live() {
		bodies, err := s.Queue.Bodies(ctx, []string{j.Key})
		if body, ok := bodies[j.Key]; ok || err != nil {
			return body, HistoryEntry{}, err
		}
	}
	entry, err := s.Queue.EntryOf(ctx, j) // it may have ended since
	if errors.Is(err, ErrNoJob) {
		err = nil
	}
	return job.Body{}, entry, err
}
