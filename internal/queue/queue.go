// Package queue keeps the laws of the queue. It holds every job from its
// acceptance to the end of its history entry, in Redis, for all hubs alike.
//
// # The laws
//
// One transition is one Lua script: atomic, by Redis's clock, and run once
// also when its reply is lost (package redis sees to that). The scripts lie
// in scripts/; the states and transitions are those of package job.
//
//		Enqueue      -> queued                 FailWaiting   queued -> failed
//		Claim        queued -> leased          CancelWaiting queued -> gone
//		Started      leased -> running         Finish        leased, running -> done, failed, cancelled
//		Requeue      leased, running -> queued Cancel        queued -> gone; else a wish for the holder
//
//	  - A job is accepted once: the same id of the same tenant with the same
//	    body is the same job, also when it has ended. With another body a new
//	    job takes the id over; the older one runs on.
//	  - A job keeps its rank for life. A run that was lost goes back to its old
//	    place.
//	  - A run is one attempt, held by one hub under a lease and known by its
//	    fence, a number that only grows, with each claim and each change of the
//	    holder. Whoever presents an older fence gets ErrStale and changes
//	    nothing, so that a hub that slept through the end of its lease cannot
//	    undo what another did since.
//	  - An instance has one run at a time: Claim refuses a second one until the
//	    first is released, finished or requeued.
//	  - A lease that ended is handed to one hub (Sweep), which looks at the
//	    instance before it decides: collect, follow or requeue.
//	  - A job is lost at most MaxAttempts times; then Requeue refuses and its
//	    holder must end it. No job vanishes in between: whoever dies leaves a
//	    lease that ends.
//	  - An end is written once, together with the history entry: a job is at
//	    every moment in Live or in History. Cancelling a waiting job leaves no
//	    entry, as in ComfyUI.
//	  - Messages to other hubs (Subscribe) are hints. Nothing depends on them;
//	    whoever waits also looks from time to time.
//
// Nothing here knows of HTTP, of instances' addresses or of schedules: which
// job goes where is package dispatch's business, what a class of
// requirements means is package catalog's.
package queue

import (
	"errors"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// What can go wrong. Errors that mean "Redis cannot be used now" match
// redis.ErrAway; after these it is not known whether the change was made.
var (
	// ErrFull says that MaxQueue jobs are waiting.
	ErrFull = errors.New("queue: full")
	// ErrNotFound says that there is no such job: never, or no longer.
	ErrNotFound = errors.New("queue: no such job")
	// ErrNotQueued says that the job does not wait any more: it was claimed
	// or has ended.
	ErrNotQueued = errors.New("queue: job is not waiting")
	// ErrTaken says that the instance has a run.
	ErrTaken = errors.New("queue: instance is taken")
	// ErrStale says that the run is not, or no longer, the caller's: another
	// holder, another attempt, or an end written by somebody else.
	ErrStale = errors.New("queue: stale run")
	// ErrExhausted says that the job has no attempts left: the caller still
	// holds the run and must Finish it as failed.
	ErrExhausted = errors.New("queue: no attempts left")
	// ErrCancelled says that the job's cancel was asked for: the caller still
	// holds the run and must Finish it as cancelled.
	ErrCancelled = errors.New("queue: cancel was asked for")
	// ErrSecrets says that a job's API keys cannot be decrypted: they were
	// encrypted with another key.
	ErrSecrets = errors.New("queue: secrets cannot be decrypted")
	// ErrCorrupt says that a stored value cannot be read.
	ErrCorrupt = errors.New("queue: corrupt value")
)

// Options of a queue. The zero value of each means its default.
type Options struct {
	// HistoryEntries bounds the ended jobs kept, over all tenants; the oldest
	// go first. Default: 10000, as in ComfyUI.
	HistoryEntries int
	// HistoryBytes bounds the compressed size of their entries. Default: 1 GiB.
	HistoryBytes int64
	// MaxQueue bounds the waiting jobs. Default: 10000.
	MaxQueue int
	// MaxAttempts is how many runs of a job may be lost. Default: 3.
	MaxAttempts int
	// Lease is how long a run stays with its holder without a Renew.
	// Default: 15 s.
	Lease time.Duration
	// Tombstone is how long Get still knows a job that was cancelled while
	// it waited. Default: 10 min.
	Tombstone time.Duration
	// Secret encrypts API keys in Redis; all hubs of a Redis need the same
	// one. Any length; a long random one is best. Without it a random one is
	// made, and API keys of waiting jobs are lost with the process.
	Secret []byte
	// Dropped is told of history entries that a bound has pushed out, so
	// that their files can go, too. It is called by the goroutine that ended
	// a job and must not wait; a hub that dies may leave some untold.
	Dropped func([]Entry)
	// Logger gets what an operator should know; default: nothing is logged.
	Logger *slog.Logger
}

// Queue is the queue of all hubs that share a Redis and a prefix. It holds no
// state of its own and is safe for concurrent use.
type Queue struct {
	db     *redis.DB
	keys   keys
	o      Options
	codec  *codec
	vault  *vault
	logger *slog.Logger
}

// Submission is a prompt that has passed all checks.
type Submission struct {
	// Key is the job's key; a Submission sent twice with one key is one job.
	Key string
	// ID is the client's prompt_id; never empty.
	ID     string
	Tenant string
	Caller string
	// Client is the client_id, empty for none.
	Client string
	// Class is the signature of Body.Requires.
	Class string
	// Priority goes from -100 to 100.
	Priority int
	// Number is what the client sent as number; nil takes the next one of
	// the tenant's counter, or its negative with Front.
	Number *float64
	Front  bool
	// BodyHash tells the same prompt from another one under the same id.
	BodyHash string
	Body     job.Body
}

// Accepted is the answer to a Submission.
type Accepted struct {
	Job job.Job
	// Existing is true when the job had been accepted before; nothing was
	// changed then.
	Existing bool
}

// ClaimRequest asks for a run of a waiting job on an idle instance.
type ClaimRequest struct {
	Key      string
	Instance string
	// Hub is the id and boot of the hub that will hold the run.
	Hub string
	// Upstream is the prompt_id that the instance will know.
	Upstream string
	// SID is the client_id given to the instance.
	SID string
}

// RenewResult tells a hub about the runs that it holds or believes to hold.
type RenewResult struct {
	// Lost runs belong to somebody else now, or their job has ended.
	Lost []job.Run
	// Cancelled runs are still held; their job's cancel was asked for.
	Cancelled []job.Run
}

// Outcome is how a job ended.
type Outcome struct {
	// State is job.Done, job.Failed or job.Cancelled.
	State job.State
	// Entry is the history entry: any JSON, given back byte for byte.
	Entry []byte
	// Summary is what listings show of an ended job without reading its
	// entry: opaque, small; nil for none.
	Summary []byte
	// Reason says in plain words why it failed.
	Reason string
}

// RequeueOptions say why a run goes back to the queue.
type RequeueOptions struct {
	// Reason is one line, kept in Job.Lost.
	Reason string
	// Excused runs do not count as attempts: the job was not to blame.
	Excused bool
}

// CancelResult is what Cancel found.
type CancelResult struct {
	// Was is the state before. From queued the job is gone; from leased and
	// running it is the holder's to interrupt and Finish; an ended job
	// stays as it ended.
	Was job.State
	// Run is the job's run where it is leased or running.
	Run job.Run
}

// Orphan is a run taken over from another holder, with what its job's record
// says of it. The run has a new fence; the instance still knows it by
// Upstream and SID.
type Orphan struct {
	job.Run
	State job.State
	// Released is true when the instance was free again and only the
	// results were missing.
	Released bool
	// Exhausted is true when the run is known to be lost and the job has no
	// attempts left: it needs a Finish.
	Exhausted bool
	// CancelAsked is true when the job's cancel was asked for.
	CancelAsked bool
}

// Page selects history entries as ComfyUI's /history does. The zero value
// selects all.
type Page struct {
	// Max is max_items; nil means no bound.
	Max *int
	// Offset counts from the oldest entry; nil or negative means that Max
	// selects the newest entries.
	Offset *int
}

// Record is an ended job as listings need it.
type Record struct {
	Job     job.Job
	Summary []byte
	// Delivered is true when the client has confirmed that it got the end.
	Delivered bool
}
