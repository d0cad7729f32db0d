package view

import (
	"context"
	"errors"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// ErrNoJob says that the tenant has no job with that id.
var ErrNoJob = queue.ErrNotFound

// What Jobs reads, see package queue.
type (
	// StoredBody is the body of a live job, still compressed.
	StoredBody = queue.StoredBody
	// EndedJob is an ended job with the summary of its history entry.
	EndedJob = queue.Record
	// HistoryEntry is the history entry of an ended job.
	HistoryEntry = queue.Entry
	// HistoryPage selects entries of a tenant's history.
	HistoryPage = queue.Page
)

// Jobs reads what is waiting, running or ended, for every dialect alike, and deletes what has
// ended. Methods that take a tenant only see that tenant's jobs; those that take keys want keys
// from a listing of the tenant's. Errors are those of Redis, besides those that a method names.
type Jobs struct {
	Queue *queue.Queue
	// ended are the records of ended jobs that listings have shown.
	ended endedCache
	// bodies are the bodies of live jobs that listings have shown.
	bodies bodyCache
}

// Live returns a tenant's running and waiting jobs in the order in which they run. Why a job is
// waiting and how often it was given out may be slightly out of date.
func (s *Jobs) Live(ctx context.Context, tenant string) ([]job.Job, error) {
	jobs, err := s.Queue.Listed(ctx, tenant)
	if err == nil {
		s.bodies.retain(tenant, jobs)
	}
	return seen(jobs), err
}

// seen returns jobs as their clients see them. An instance runs one prompt at a time: one that
// begins there while the end of the one before is still being stored waits until that is done.
func seen(jobs []job.Job) []job.Job {
	oldest := map[string]int64{} // instance -> fence of the run that is longest there
	for n, j := range jobs {
		jobs[n] = j.Seen()
		fence, there := oldest[j.Run.Instance]
		if running(jobs[n]) && j.Run.Instance != "" && (!there || j.Run.Fence < fence) {
			oldest[j.Run.Instance] = j.Run.Fence
		}
	}
	for n, j := range jobs {
		if fence, there := oldest[j.Run.Instance]; there && running(j) && j.Run.Fence > fence {
			jobs[n].State, jobs[n].Ahead = job.Queued, true
		}
	}
	return jobs
}

// LiveOf returns those of one of a tenant's owners.
func (s *Jobs) LiveOf(ctx context.Context, tenant string, owner job.Owner) ([]job.Job, error) {
	if owner.Place != "" {
		jobs, err := s.Live(ctx, tenant)
		return slices.DeleteFunc(jobs, func(j job.Job) bool { return !owner.Has(j) }), err
	}
	var own []job.Job
	for _, caller := range owner.Callers {
		jobs, err := s.Queue.LiveOf(ctx, caller)
		if err != nil {
			return nil, err
		}
		own = append(own, jobs...)
	}
	return slices.DeleteFunc(seen(own), func(j job.Job) bool { return j.Tenant != tenant }), nil
}

// Running returns the jobs with these keys that are running and that somebody may see.
func (s *Jobs) Running(ctx context.Context, keys []string) ([]job.Job, error) {
	jobs, err := s.Queue.GetAll(ctx, keys)
	return slices.DeleteFunc(jobs, func(j job.Job) bool { return !running(j.Seen()) || j.Withdrawn }), err
}

// Count returns how many jobs of one of a tenant's owners are waiting or running.
func (s *Jobs) Count(ctx context.Context, tenant string, owner job.Owner) (total int, err error) {
	if owner.Place != "" {
		jobs, err := s.LiveOf(ctx, tenant, owner)
		return len(jobs), err
	}
	for _, caller := range owner.Callers {
		n, err := s.Queue.Count(ctx, caller)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Ended returns a tenant's ended jobs, oldest first. A listing of both reads Live first, so that a
// job that ends meanwhile is found twice rather than not at all.
func (s *Jobs) Ended(ctx context.Context, tenant string) ([]EndedJob, error) {
	return s.ended.of(ctx, s.Queue, tenant)
}

// EachBody passes the bodies of those of a tenant's jobs that are live to use, in the order of the
// keys, with few of them in memory at a time. The keys must be from the tenant's listing. A job
// that has ended since may be among them. It stops at the first error of use.
func (s *Jobs) EachBody(ctx context.Context, tenant string, keys []string, use func(StoredBody) error) error {
	return s.bodies.each(ctx, s.Queue, tenant, keys, use)
}

// EndedOf returns those of some jobs, live a moment ago, that have ended since; others are gone. It takes
// no tenant: the keys must be from one tenant's listing, never something that a request has named.
func (s *Jobs) EndedOf(ctx context.Context, keys []string) ([]EndedJob, error) {
	return s.Queue.EndedOf(ctx, keys)
}

// Find returns the newest job with an id, or a zero one.
func (s *Jobs) Find(ctx context.Context, tenant, id string) (job.Job, error) {
	j, err := s.Queue.Find(ctx, tenant, id)
	if errors.Is(err, queue.ErrNotFound) {
		return job.Job{}, nil
	}
	if err == nil && j.Withdrawn {
		return job.Job{}, nil // its run may not have ended yet, but nobody is to see it
	}
	return j.Seen(), err
}

// FindAll returns the newest jobs with some ids, by id, as Find finds each.
func (s *Jobs) FindAll(ctx context.Context, tenant string, ids []string) (map[string]job.Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := s.Queue.FindAll(ctx, tenant, ids)
	found := make(map[string]job.Job, len(jobs))
	for _, j := range jobs {
		if !j.Withdrawn {
			found[j.ID] = j.Seen()
		}
	}
	return found, err
}

// FindLive returns the running job with an id, else a waiting one, else a zero one.
func (s *Jobs) FindLive(ctx context.Context, tenant, id string) (job.Job, error) {
	found, err := s.FindLiveAll(ctx, tenant, []string{id})
	return found[id], err
}

// FindLiveAll returns the jobs with some ids, by id, as FindLive finds each. It lists the tenant's
// jobs once for all of them, if any of their newest ones is not running.
func (s *Jobs) FindLiveAll(ctx context.Context, tenant string, ids []string) (map[string]job.Job, error) {
	found, err := s.FindAll(ctx, tenant, ids)
	if err != nil {
		return nil, err
	}
	// For the others, an older job may be running or waiting. What the newest was a moment ago
	// counts: it may be claimed just now, and is there all the same.
	open := map[string]bool{}
	for _, id := range ids {
		if j := found[id]; !running(j) {
			open[id] = true
			if j.State != job.Queued {
				delete(found, id)
			}
		}
	}
	if len(open) == 0 {
		return found, nil
	}
	jobs, err := s.Queue.Listed(ctx, tenant)
	for _, j := range seen(jobs) {
		known, has := found[j.ID]
		if open[j.ID] && (!has || known.State == job.Queued && j.State != job.Queued) {
			found[j.ID] = j
		}
	}
	return found, err
}

// FindRunning returns the running job with an id, or a zero one.
func (s *Jobs) FindRunning(ctx context.Context, tenant, id string) (job.Job, error) {
	j, err := s.FindLive(ctx, tenant, id)
	if err != nil || !running(j) {
		return job.Job{}, err
	}
	return j, nil
}

// running reports whether an instance has a job.
func running(j job.Job) bool { return j.State == job.Leased || j.State == job.Running }

// FoundJob is a job that was asked for by its id.
type FoundJob struct {
	job.Job
	// Body is the body of a live job.
	Body job.Body
	// Entry is the entry of an ended job.
	Entry HistoryEntry
}

// Look finds a job with everything that is known about it. Of several jobs with the id it returns
// an ended one, else a running one, else a waiting one. The error may be ErrNoJob.
func (s *Jobs) Look(ctx context.Context, tenant, id string) (FoundJob, error) {
	live, err := s.FindLive(ctx, tenant, id)
	var bodies map[string]job.Body
	if err == nil && live.Key != "" {
		bodies, err = s.Queue.Bodies(ctx, []string{live.Key})
	}
	if err != nil {
		return FoundJob{}, err
	}
	// After the live one was read, see Ended.
	entry, err := s.Queue.HistoryEntry(ctx, tenant, id)
	if err == nil {
		j, err := s.Queue.Get(ctx, entry.Key)
		return FoundJob{Job: j, Entry: entry}, err
	}
	if body, whole := bodies[live.Key]; whole && errors.Is(err, queue.ErrNotFound) {
		return FoundJob{Job: live, Body: body}, nil
	}
	return FoundJob{}, err
}

// History returns entries of a tenant, oldest first, with ComfyUI's paging.
func (s *Jobs) History(ctx context.Context, tenant string, p HistoryPage) ([]HistoryEntry, error) {
	return s.Queue.History(ctx, tenant, p)
}

// HistoryEntry returns the entry of an id. The error may be ErrNoJob.
func (s *Jobs) HistoryEntry(ctx context.Context, tenant, id string) (HistoryEntry, error) {
	return s.Queue.HistoryEntry(ctx, tenant, id)
}

// Packed is what the history has of a job, still packed.
type Packed interface {
	// Size is about how many bytes JSON returns.
	Size() int64
	// JSON is the entry as it was written.
	JSON() ([]byte, error)
}

// Outcome returns what the history has of an ended job. The error may be ErrNoJob: it was removed.
func (s *Jobs) Outcome(ctx context.Context, j job.Job) (Packed, error) {
	entry, err := s.Queue.HistoryEntry(ctx, j.Tenant, j.ID)
	if err == nil && entry.Key != j.Key {
		err = ErrNoJob
	}
	return entry, err
}

// DeleteHistory removes the entries with these ids; unknown ones are ignored.
func (s *Jobs) DeleteHistory(ctx context.Context, tenant string, ids []string) error {
	return s.Queue.DeleteHistory(ctx, tenant, ids)
}

// ClearHistory removes the entries of one of a tenant's owners.
func (s *Jobs) ClearHistory(ctx context.Context, tenant string, owner job.Owner) error {
	return s.Queue.ClearHistoryOf(ctx, tenant, owner)
}
