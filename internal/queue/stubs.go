package queue

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

type keys struct{}
type codec struct{}
type vault struct{}

// New gives the queue in a Redis.
func New(db *redis.DB, o Options) (*Queue, error) { return &Queue{db: db, o: o}, nil }

// Enqueue accepts a job, or finds the one that was accepted before under the
// same key or the same id and body. Errors: ErrFull.
func (q *Queue) Enqueue(ctx context.Context, s Submission) (Accepted, error) { panic("soon") }

// TakeNumber consumes the next number of a tenant's counter, as ComfyUI does
// for prompts that it rejects.
func (q *Queue) TakeNumber(ctx context.Context, tenant string) (int64, error) { panic("soon") }

// Classes gives the classes that have waiting jobs, each with its requirements.
func (q *Queue) Classes(ctx context.Context) (map[string][]byte, error) { panic("soon") }

// Peek gives the n best waiting jobs over the classes, in rank order.
func (q *Queue) Peek(ctx context.Context, classes []string, n int) ([]job.Job, error) { panic("soon") }

// Body gives a live job's body. Errors: ErrNotFound, ErrSecrets.
func (q *Queue) Body(ctx context.Context, key string) (job.Body, error) { panic("soon") }

// Bodies gives the bodies of those of the jobs that are live, without secrets and Requires.
func (q *Queue) Bodies(ctx context.Context, keys []string) (map[string]job.Body, error) {
	panic("soon")
}

// Claim gives a waiting job to an instance. Errors: ErrNotQueued, ErrTaken.
func (q *Queue) Claim(ctx context.Context, r ClaimRequest) (job.Job, error) { panic("soon") }

// Started says that the instance began to execute. Errors: ErrStale.
func (q *Queue) Started(ctx context.Context, run job.Run) error { panic("soon") }

// Renew prolongs the leases of a hub's runs, all at once.
func (q *Queue) Renew(ctx context.Context, hub string, runs []job.Run) (RenewResult, error) {
	panic("soon")
}

// Progress notes how far the running node is, from 0 to 1. Errors: ErrStale.
func (q *Queue) Progress(ctx context.Context, run job.Run, fraction float64) error { panic("soon") }

// Release frees the instance; the job stays with its holder. Errors: ErrStale.
func (q *Queue) Release(ctx context.Context, run job.Run) error { panic("soon") }

// Finish ends a run and its job; the same end twice is no error. Errors: ErrStale.
func (q *Queue) Finish(ctx context.Context, run job.Run, o Outcome) error { panic("soon") }

// Requeue puts a lost run's job back at its old place. Errors: ErrStale,
// ErrExhausted and ErrCancelled; with the last two the caller still holds the
// run and must Finish it.
func (q *Queue) Requeue(ctx context.Context, run job.Run, o RequeueOptions) (job.Job, error) {
	panic("soon")
}

// Cancel removes a waiting job or asks the holder of a running one to end it. Errors: ErrNotFound.
func (q *Queue) Cancel(ctx context.Context, key string) (CancelResult, error) { panic("soon") }

// CancelWaiting removes those of the jobs that still wait and gives their keys.
func (q *Queue) CancelWaiting(ctx context.Context, keys []string) ([]string, error) { panic("soon") }

// FailWaiting ends a waiting job as failed. Errors: ErrNotQueued, ErrNotFound.
func (q *Queue) FailWaiting(ctx context.Context, key string, o Outcome) error { panic("soon") }

// SetReason notes why a job waits. Errors: ErrNotQueued.
func (q *Queue) SetReason(ctx context.Context, key, reason string) error { panic("soon") }

// Get gives a job. Errors: ErrNotFound.
func (q *Queue) Get(ctx context.Context, key string) (job.Job, error) { panic("soon") }

// Find gives the newest job of an id. Errors: ErrNotFound.
func (q *Queue) Find(ctx context.Context, tenant, id string) (job.Job, error) { panic("soon") }

// Position counts the jobs that wait before this one; 0 is the next. Errors: ErrNotQueued.
func (q *Queue) Position(ctx context.Context, key string) (int, error) { panic("soon") }

// Live gives the running and waiting jobs of a tenant, or of all with "", in rank order.
func (q *Queue) Live(ctx context.Context, tenant string) ([]job.Job, error) { panic("soon") }

// LiveOf gives the running and waiting jobs of a caller in rank order.
func (q *Queue) LiveOf(ctx context.Context, caller string) ([]job.Job, error) { panic("soon") }

// Count counts the live jobs of a caller.
func (q *Queue) Count(ctx context.Context, caller string) (int, error) { panic("soon") }

// CountAll counts the live jobs of all and those of them that wait.
func (q *Queue) CountAll(ctx context.Context) (live, waiting int, err error) { panic("soon") }

// Entry is a history entry, compressed until its JSON is asked for.
type Entry struct {
	Key    string
	Tenant string
	ID     string
}

// JSON gives the entry as it was written.
func (e Entry) JSON() ([]byte, error) { panic("soon") }

// History gives entries of a tenant, oldest first, with ComfyUI's paging.
func (q *Queue) History(ctx context.Context, tenant string, page Page) ([]Entry, error) {
	panic("soon")
}

// HistoryEntry gives the entry of an id. Errors: ErrNotFound.
func (q *Queue) HistoryEntry(ctx context.Context, tenant, id string) (Entry, error) { panic("soon") }

// Ended gives the records of ended jobs of a tenant, oldest first.
func (q *Queue) Ended(ctx context.Context, tenant string, page Page) ([]Record, error) { panic("soon") }

// DeleteHistory removes the entries of ids; unknown ids are no error.
func (q *Queue) DeleteHistory(ctx context.Context, tenant string, ids []string) error { panic("soon") }

// ClearHistory removes the entries of a tenant, or of one of its callers where caller is not empty.
func (q *Queue) ClearHistory(ctx context.Context, tenant, caller string) error { panic("soon") }

// Runs gives all runs that are held.
func (q *Queue) Runs(ctx context.Context) ([]job.Run, error) { panic("soon") }

// Sweep hands runs whose lease ended to the asking hub, at most limit of them.
func (q *Queue) Sweep(ctx context.Context, hub string, limit int) ([]Orphan, error) { panic("soon") }

// Adopt takes a run over from a hub that is known to be dead. Errors: ErrStale.
func (q *Queue) Adopt(ctx context.Context, run job.Run, hub string) (Orphan, error) { panic("soon") }

// DeliveredEnd notes that the client confirmed the end of its job.
func (q *Queue) DeliveredEnd(ctx context.Context, key string) error { panic("soon") }

// Undelivered gives ended jobs whose client has not confirmed the end, in order of end.
func (q *Queue) Undelivered(ctx context.Context, tenant, client string) ([]job.Job, error) {
	panic("soon")
}

// Kind says what an Event tells.
type Kind string

// The kinds of events.
const (
	// Resync: events may have been missed.
	Resync    Kind = "resync"
	Queued    Kind = "queued"
	Claimed   Kind = "claimed"
	Started   Kind = "started"
	Freed     Kind = "freed"
	CancelAsk Kind = "cancel"
	Ended     Kind = "ended"
)

// Event is a hint that something happened.
type Event struct {
	Kind                                           Kind
	Key, ID, Tenant, Caller, Client, Instance, Hub string
}

// Subscribe gives events until the context ends.
func (q *Queue) Subscribe(ctx context.Context) <-chan Event { panic("soon") }
