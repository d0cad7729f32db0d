// Package queue implements the queue and its invariants. It holds every job in
// Redis, from its acceptance to the end of its history entry, for all hubs.
//
// # Invariants
//
// Each transition is one Lua script: it is atomic, uses Redis's clock, and takes
// effect once even if its reply is lost (package redis ensures that). The scripts
// in scripts/ enforce the states and transitions; the tests compare them with the
// table of package job.
//
//		Enqueue      -> queued                 FailWaiting   queued -> failed
//		Claim        queued -> leased          CancelWaiting queued -> gone
//		Started      leased -> running         Finish        leased, running -> done, failed, cancelled; gone if withdrawn
//		Requeue      leased, running -> queued Cancel        queued -> gone; otherwise a request to the holder
//		                                       Withdraw      as Cancel, and the job is no longer in Live
//		Reject       leased -> gone
//
//	  - A job is accepted once: the same id of the same tenant with the same
//	    body is the same job, even after it has ended. With another body, a new
//	    job takes over the id; the older one continues.
//	  - A job keeps its rank for life. The job of a lost run returns to its old
//	    place.
//	  - A run is one attempt, held by one hub under a lease and identified by its
//	    fence, a number that grows with each claim and each change of the
//	    holder. A caller with an older fence gets ErrStale and changes nothing,
//	    so that a hub that slept through the end of its lease cannot undo what
//	    another has done since.
//	  - An instance has one run at a time: Claim refuses a second one until the
//	    first is released, finished or requeued.
//	  - When a lease ends, one hub gets the run (Sweep), or earlier if its hub
//	    has stopped or died (Inherit). It looks at the instance before it decides
//	    whether to collect, follow or requeue.
//	  - A job is lost at most MaxAttempts times, and kills at most MaxKills
//	    instances; then Requeue refuses and its holder must end it. Runs that do
//	    not count are bounded, too (MaxExcuses, MaxReruns). No job vanishes in
//	    between: a hub that dies leaves a lease that ends.
//	  - An end is written once, together with the history entry: a job is always
//	    in Live or in History. Cancelling a waiting job leaves no entry, as in
//	    ComfyUI. Withdrawing a running job leaves none either; it is removed
//	    from Live at once, but its lease is kept until its run has ended.
//	  - What Redis has confirmed and then lost, the hub that was told of it puts back
//	    (Heal), unless the job was removed on purpose.
//	  - Messages to other hubs (Subscribe) are hints. Nothing depends on them;
//	    every waiter also polls from time to time.
//
// The package knows nothing of HTTP, of the addresses of instances or of
// scheduling. Package dispatch decides which job goes where, and package catalog
// what a class of requirements means.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Errors of the queue.
var (
	// ErrUnavailable means that Redis, or the key for a job's API keys, is unavailable now; the
	// change may or may not have been made. Repeating is safe: an Enqueue of the same key, a Claim
	// of the same upstream id and an end of the same run take effect once.
	ErrUnavailable = redis.ErrUnavailable
	// ErrFull means that MaxQueue jobs are waiting, or MaxQueueBytes.
	ErrFull = errors.New("queue: full")
	// ErrFullBytes is the ErrFull of MaxQueueBytes.
	ErrFullBytes = fmt.Errorf("%w: too many bytes", ErrFull)
	// ErrTenantFull means that the tenant has TenantMaxQueue jobs waiting, or
	// TenantMaxQueueBytes. Others are not affected.
	ErrTenantFull = errors.New("queue: full for this tenant")
	// ErrTenantFullBytes is the ErrTenantFull of TenantMaxQueueBytes.
	ErrTenantFullBytes = fmt.Errorf("%w: too many bytes", ErrTenantFull)
	// ErrTenantSpent means that the tenant has used all the time of instances that it has
	// for a day. The error is a [SpentError].
	ErrTenantSpent = errors.New("queue: the tenant has used up its time for the day")
	// ErrTenantRate means that the tenant posts too many prompts a minute. The error is a
	// [RateError].
	ErrTenantRate = errors.New("queue: the tenant posts too many prompts a minute")
	// ErrCapped means that the tenant may not begin another run now.
	ErrCapped = errors.New("queue: the tenant is at its limit of runs or of time")
	// ErrNotFound means that there is no such job, or no longer.
	ErrNotFound = errors.New("queue: no such job")
	// ErrNotQueued means that the job is no longer waiting: it was claimed or has
	// ended. To a Claim it also means that the job must not run yet.
	ErrNotQueued = errors.New("queue: job is not waiting")
	// ErrTaken means that the instance has a run.
	ErrTaken = errors.New("queue: instance is taken")
	// ErrStale means that the run is not, or no longer, the caller's: there is another holder,
	// another attempt, or an end written by another hub.
	ErrStale = errors.New("queue: stale run")
	// ErrExhausted means that the job must not run again: the caller still holds
	// the run and must Finish it as failed.
	ErrExhausted = errors.New("queue: no attempts left")
	// ErrCancelled means that the job's cancel was requested: the caller still
	// holds the run and must Finish it as cancelled.
	ErrCancelled = errors.New("queue: cancel was asked for")
	// ErrWithdrawn means that the job's client has withdrawn it: the run must end, and nobody is
	// told about it.
	ErrWithdrawn = errors.New("queue: withdrawn")
	// ErrAnswered means that the client has been told that the job was accepted, so a refusal comes
	// too late.
	ErrAnswered = errors.New("queue: the client has its answer")
	// ErrSecrets means that a job's API keys cannot be decrypted: they were
	// encrypted with another key.
	ErrSecrets = errors.New("queue: secrets cannot be decrypted")
	// ErrCorrupt means that a stored value cannot be decoded.
	ErrCorrupt = errors.New("queue: corrupt value")
)

// SpentError is an ErrTenantSpent.
type SpentError struct {
	// Wait is how long until the tenant may go on.
	Wait time.Duration
}

// Error implements error.
func (e SpentError) Error() string { return ErrTenantSpent.Error() }

// Is implements the interface of errors.Is.
func (e SpentError) Is(target error) bool { return target == ErrTenantSpent }

// RateError is an ErrTenantRate.
type RateError struct {
	// Wait is how long until the tenant may post again.
	Wait time.Duration
}

// Error implements error.
func (e RateError) Error() string { return ErrTenantRate.Error() }

// Is implements the interface of errors.Is.
func (e RateError) Is(target error) bool { return target == ErrTenantRate }

// Options of a queue. The zero value of each field means its default.
type Options struct {
	// HistoryEntries bounds the ended jobs that are kept, over all tenants; beyond it the tenant
	// with the most loses its oldest. Default: 10000, as in ComfyUI.
	HistoryEntries int
	// TenantHistory bounds those of one tenant. Default: HistoryEntries.
	TenantHistory int
	// HistoryBytes bounds the compressed size of their entries. Default: 1 GiB.
	HistoryBytes int64
	// MaxQueue bounds the waiting jobs. Default: 10000.
	MaxQueue int
	// MaxQueueBytes bounds their bodies as they are stored: compressed, with the
	// API keys. Default: 1 GiB.
	MaxQueueBytes int64
	// TenantMaxQueue bounds the waiting jobs of one tenant. Default: no limit per
	// tenant.
	TenantMaxQueue int
	// TenantMaxQueueBytes is the same for MaxQueueBytes.
	TenantMaxQueueBytes int64
	// MaxAttempts is how many runs of a job may be lost. Default: 3.
	MaxAttempts int
	// Lease is how long a run stays with its holder without a Renew. Default: 15 s.
	Lease time.Duration
	// Tombstone is how long Get still knows a job that was cancelled while it
	// waited. Default: 10 min.
	Tombstone time.Duration
	// Sealer encrypts API keys in Redis. Without it a random key is used, and the
	// API keys of waiting jobs are lost with the process.
	Sealer Sealer
	// Notes is a folder of this hub's own, in which what [Recovery.Heal] may have to put back is kept
	// for the next process. Default: it dies with this one.
	Notes string
	// HealFirst puts back what Redis has lost of the files that the ends of jobs refer to. Jobs are
	// put back only after it has succeeded. Default: nothing.
	HealFirst func(context.Context) error
	// Logger receives what an operator should know; default: nothing is logged.
	Logger *slog.Logger
}

// Queue is the queue of all hubs that share a Redis and a prefix. Besides its limits it holds
// copies of the jobs that it has recently changed, see [Recovery.Heal]. It is safe for concurrent
// use. Each of its parts has the scripts for one kind of rule.
type Queue struct {
	*store
	*WaitingJobs
	*LeasedRuns
	*RunEnds
	*Recovery
	*EndedJobs
	*Callbacks
	*Lookup
	*Listing
	*Pauses
	*Lessons
	*SplitJobs
}

// The parts of a Queue.
type (
	// WaitingJobs accepts jobs, tells which are due, and withdraws them.
	WaitingJobs struct{ *store }
	// LeasedRuns gives jobs out and keeps their leases, including those of hubs that have died.
	LeasedRuns struct{ *Recovery }
	// RunEnds ends jobs, or puts them back in their places.
	RunEnds struct{ *Recovery }
	// Recovery puts back what Redis has lost.
	Recovery struct{ *store }
	// SplitJobs makes jobs in parts.
	SplitJobs struct{ *Recovery }
	// EndedJobs is the history.
	EndedJobs struct{ *store }
	// Callbacks is what users' programs are to be told.
	Callbacks struct{ *store }
	// Lookup finds jobs, and counts them.
	Lookup struct{ *store }
	// Listing is what clients see of waiting and running jobs.
	Listing struct{ *store }
	// Pauses is what the operator has stopped.
	Pauses struct{ *store }
	// Lessons is what runs have taught, and what they cost.
	Lessons struct{ *store }
)

// store is what all parts work with.
type store struct {
	db    *redis.DB
	keys  keys
	o     Options
	limit atomic.Pointer[Limits]
	codec *codec
	log   *slog.Logger

	copies   *copies // nil with the embedded server
	requires requirements
	listings listings
	heal     healing
	room     room
}

// Clock returns the clock that jobs are stored by.
func (q *store) Clock() *redis.Clock { return q.db.Clock() }

// New returns the queue in a Redis.
func New(db *redis.DB, o Options) (*Queue, error) {
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Tombstone = cmp.Or(o.Tombstone, 10*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	codec, err := newCodec()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if o.Sealer == nil {
		if o.Sealer, err = randomVault(); err != nil {
			return nil, err
		}
	}
	q := &store{db: db, keys: keys{db}, o: o, codec: codec, heal: healing{turn: semaphore.NewWeighted(1)}, room: room{turn: semaphore.NewWeighted(1)}, log: o.Logger}
	if !db.Embedded() {
		q.recall()
	}
	q.SetLimits(Limits{
		HistoryEntries: o.HistoryEntries, TenantHistory: o.TenantHistory, HistoryBytes: o.HistoryBytes,
		MaxQueue: o.MaxQueue, MaxQueueBytes: o.MaxQueueBytes, MaxAttempts: o.MaxAttempts,
		TenantQueue: func(string) (int, int64) { return o.TenantMaxQueue, o.TenantMaxQueueBytes },
	})
	recovery := &Recovery{q}
	return &Queue{
		q, &WaitingJobs{q}, &LeasedRuns{recovery}, &RunEnds{recovery}, recovery, &EndedJobs{q},
		&Callbacks{q}, &Lookup{q}, &Listing{q}, &Pauses{q}, &Lessons{q}, &SplitJobs{recovery},
	}, nil
}

// Limits are the Options that may change while the queue is in use. The zero value of each field
// means its default.
type Limits struct {
	HistoryEntries int
	TenantHistory  int
	HistoryBytes   int64
	MaxQueue       int
	MaxQueueBytes  int64
	// TenantQueue returns TenantMaxQueue and TenantMaxQueueBytes for a tenant; 0
	// means no limit. Default: no limit for any tenant.
	TenantQueue func(tenant string) (jobs int, bytes int64)
	MaxAttempts int
	// FIFO makes jobs run in order of arrival, whoever posted them. Default: tenants, and the
	// callers of each, take turns.
	FIFO bool
	// Weight returns a tenant's share of the instances relative to others. Default: 1 for each.
	Weight func(tenant string) float64
	// TenantRuns returns how many runs a tenant may have at once, and how much instance time it may
	// use within any 24 hours, by the hour; 0 means no limit. A run that has begun goes on.
	// Default: no limit for any tenant.
	TenantRuns func(tenant string) (running int, daily time.Duration)
	// TenantRate returns how many prompts a minute a tenant may post; 0 means no limit. That many
	// may arrive at once. Default: no limit for any tenant.
	TenantRate func(tenant string) int
}

// SetLimits replaces the limits, for example when the configuration is reloaded. Whatever exceeds a
// new limit is dropped with the next change of its kind.
func (q *store) SetLimits(l Limits) {
	l.HistoryEntries = cmp.Or(l.HistoryEntries, 10000)
	l.TenantHistory = cmp.Or(l.TenantHistory, l.HistoryEntries)
	l.HistoryBytes = cmp.Or(l.HistoryBytes, 1<<30)
	l.MaxQueue = cmp.Or(l.MaxQueue, 10000)
	l.MaxQueueBytes = cmp.Or(l.MaxQueueBytes, 1<<30)
	l.MaxAttempts = cmp.Or(l.MaxAttempts, 3)
	if l.TenantQueue == nil {
		l.TenantQueue = func(string) (int, int64) { return 0, 0 }
	}
	if l.Weight == nil {
		l.Weight = func(string) float64 { return 1 }
	}
	if l.TenantRuns == nil {
		l.TenantRuns = func(string) (int, time.Duration) { return 0, 0 }
	}
	if l.TenantRate == nil {
		l.TenantRate = func(string) int { return 0 }
	}
	q.limit.Store(&l)
}

// order returns the order of the queue as scripts name it.
func (q *store) order() string {
	if q.limit.Load().FIFO {
		return "fifo"
	}
	return "fair"
}

// run runs a script and returns the code of its reply and the rest.
func (q *store) run(ctx context.Context, s *redis.Script, args ...any) (string, []string, error) {
	change := func() ([]string, error) { return q.db.Run(ctx, s, args...) }
	reply, err := change()
	if isFull(err) {
		reply, err = q.withRoom(ctx, err, change)
	}
	if err != nil {
		q.doubt(err)
		return "", nil, fmt.Errorf("queue: %w", err)
	}
	if len(reply) == 0 {
		return "", nil, fmt.Errorf("%w: empty reply of script %s", ErrCorrupt, s.Name())
	}
	return reply[0], reply[1:], nil
}

// doubt notes that Redis may be a different one when it is back.
func (q *store) doubt(err error) {
	if errors.Is(err, ErrUnavailable) {
		q.heal.doubt.Store(true)
	}
}

// refusal returns the error for a script's code; nil for "ok".
func refusal(code string) error {
	switch code {
	case "ok":
		return nil
	case "full":
		return ErrFull
	case "full_bytes":
		return ErrFullBytes
	case "tenant_full":
		return ErrTenantFull
	case "tenant_full_bytes":
		return ErrTenantFullBytes
	case "callbacks_full":
		return ErrCallbacksFull
	case "tenant_callbacks_full":
		return ErrTenantCallbacksFull
	case "missing":
		return ErrNotFound
	case "not_queued":
		return ErrNotQueued
	case "taken":
		return ErrTaken
	case "capped":
		return ErrCapped
	case "stale":
		return ErrStale
	case "closed":
		return ErrAnswered
	case "exhausted":
		return ErrExhausted
	case "cancelled":
		return ErrCancelled
	case "withdrawn":
		return ErrWithdrawn
	default:
		return fmt.Errorf("%w: code %q", ErrCorrupt, code)
	}
}

// milliseconds converts a duration for scripts.
func milliseconds(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
