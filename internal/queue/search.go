package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// MaxSearched is how many jobs a search looks at before it says where to go on.
const MaxSearched = 2048

// ErrCursor means that a cursor is none that a search has returned.
var ErrCursor = errors.New("queue: no such place to go on from")

// Found is a part of what a search finds.
type Found struct {
	Jobs []job.Job
	// Looked is how many jobs were looked at.
	Looked int
	// Next is where to go on, empty if there is nothing more.
	Next string
}

// What cursors begin with, each followed by the last job that was looked at: its rank among the
// live ones, or its score in the history.
const (
	afterLive  = "l:"
	afterEnded = "e:"
)

// Search finds up to limit jobs of a tenant, or of all with "": those that run and wait in rank
// order, then those that have ended, the newest first. has decides which; the states that the
// filter does not want are not read. It looks at MaxSearched jobs at most, and goes on after cursor,
// which is empty for the first part. A job that ends between two parts may be in both. Jobs that no
// listing shows are left out. The error may be ErrCursor.
func (q *Lookup) Search(ctx context.Context, f job.Filter, cursor string, limit int, has func(job.Job) bool) (Found, error) {
	s := &search{Lookup: q, tenant: f.Tenant, limit: limit, has: has}
	s.found.Next = cursor
	after, ended := strings.CutPrefix(cursor, afterEnded)
	if !ended {
		after, _ = strings.CutPrefix(cursor, afterLive)
		if cursor != "" && (after == cursor || after == "") {
			return Found{}, ErrCursor
		}
		if f.Wants(job.Queued, job.Leased, job.Running) {
			more, err := s.live(ctx, after)
			if more || err != nil {
				return s.found, err
			}
		}
		after = ""
	}
	if !f.Wants(job.Done, job.Failed, job.Cancelled) {
		s.found.Next = ""
		return s.found, nil
	}
	if after != "" {
		if _, err := strconv.ParseInt(after, 10, 64); err != nil {
			return Found{}, ErrCursor
		}
	} else if ended {
		return Found{}, ErrCursor
	}
	more, err := s.ended(ctx, after)
	if !more {
		s.found.Next = ""
	}
	return s.found, err
}

// search is one search.
type search struct {
	*Lookup

	tenant string
	limit  int
	has    func(job.Job) bool
	found  Found
}

// place is a job that is to be looked at, and where to go on after it.
type place struct{ key, cursor string }

// live looks at live jobs with ranks above after. more says that it has not come to their end.
func (s *search) live(ctx context.Context, after string) (more bool, err error) {
	set, from := s.keys.live(s.tenant), int64(0)
	for {
		if after != "" { // others have left since
			if from, err = s.db.Client().ZLexCount(ctx, set, "-", "["+after).Result(); err != nil {
				return false, fmt.Errorf("queue: %w", err)
			}
		}
		ranks, err := s.db.Client().ZRange(ctx, set, from, from+s.batch()-1).Result()
		if err != nil {
			return false, fmt.Errorf("queue: %w", err)
		}
		places := make([]place, len(ranks))
		for n, rank := range ranks {
			places[n], after = place{keyOf(rank), afterLive + rank}, rank
		}
		if full, err := s.look(ctx, places, job.State.Live); full || err != nil || len(places) == 0 {
			return full, err
		}
	}
}

// ended looks at ended jobs with scores below before, or at all with "". more is as for live.
func (s *search) ended(ctx context.Context, before string) (more bool, err error) {
	set, below := s.db.Key("q", "history"), "+inf"
	if s.tenant != "" {
		set = s.keys.history(s.tenant)
	}
	for {
		if before != "" {
			below = "(" + before
		}
		left, err := s.db.Client().ZCount(ctx, set, "-inf", below).Result()
		if err != nil || left == 0 {
			return false, wrapped(err)
		}
		ends, err := s.db.Client().ZRangeWithScores(ctx, set, max(left-s.batch(), 0), left-1).Result()
		if err != nil || len(ends) == 0 {
			return false, wrapped(err)
		}
		places := placesOf(ends)
		if full, err := s.look(ctx, places, job.State.Ended); full || err != nil {
			return full, err
		}
		before = strings.TrimPrefix(places[len(places)-1].cursor, afterEnded)
	}
}

// wrapped is an error of Redis.
func wrapped(err error) error {
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

// placesOf are ended jobs, the newest first.
func placesOf(ends []redis.Z) []place {
	places := make([]place, 0, len(ends))
	for _, end := range slices.Backward(ends) {
		key, _ := end.Member.(string)
		places = append(places, place{key, afterEnded + strconv.FormatInt(int64(end.Score), 10)})
	}
	return places
}

// batch is how many jobs to read next.
func (s *search) batch() int64 { return int64(min(batchSize, MaxSearched-s.found.Looked)) }

// look takes over what is wanted of some jobs. full says that there may be more, but not in this part.
func (s *search) look(ctx context.Context, places []place, in func(job.State) bool) (full bool, err error) {
	keys := make([]string, len(places))
	for n, p := range places {
		keys[n] = p.key
	}
	jobs, err := s.jobs(ctx, keys)
	if err != nil {
		return false, err
	}
	byKey := make(map[string]job.Job, len(jobs))
	for _, j := range jobs {
		byKey[j.Key] = j
	}
	now := s.Clock().Now()
	for _, p := range places {
		j, ok := byKey[p.key]
		if ok && in(j.State) && !j.Withdrawn && j.Parent == "" && !j.AtDoor(now) && s.has(j) {
			s.found.Jobs = append(s.found.Jobs, j)
		}
		s.found.Looked++
		s.found.Next = p.cursor
		if len(s.found.Jobs) == s.limit || s.found.Looked == MaxSearched {
			return true, nil
		}
	}
	return false, nil
}
