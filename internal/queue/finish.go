package queue

import (
	"context"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Outcome is how a job ended.
type Outcome struct {
	// State is job.Done, job.Failed or job.Cancelled.
	State job.State
	// Entry is the history entry: any JSON, given back byte for byte.
	Entry []byte
	// Summary is what listings show of an ended job without reading its
	// entry: opaque, small; nil for none.
	Summary []byte
	// Reason says in plain words why it failed; empty when it did not.
	Reason string
	// Uses are the files that the entry names.
	Uses Uses
}

// Uses are files in indexes of package files. The end of a run is noted there
// as their last use in the same step that writes the entry, so that entries and
// files grow old together.
type Uses struct {
	// Indexes are keys of sorted sets, of the same Redis and prefix.
	Indexes []string
	// Members that are not in an index are left out.
	Members []string
}

func (u Uses) args() []any {
	if len(u.Members) == 0 {
		return nil
	}
	args := []any{len(u.Indexes)}
	for _, index := range u.Indexes {
		args = append(args, index)
	}
	for _, m := range u.Members {
		args = append(args, m)
	}
	return args
}

// Finish ends a run and its job and writes its history entry, which replaces
// one of the same id. The body and the API keys are deleted. The same end
// sent twice is no error. On the embedded server the end is on disk when
// Finish returns. Errors: ErrStale, and then nothing was changed; ErrWithdrawn
// when the job's client had taken it back: it has ended, without an entry.
func (q *Queue) Finish(ctx context.Context, run job.Run, o Outcome) error {
	if !o.State.Ended() {
		return fmt.Errorf("queue: %q is no end", o.State)
	}
	return q.end(ctx, o, finishScript, run.Key, run.Fence, string(o.State))
}

// FailWaiting ends a waiting job that nobody can run. Outcome.State and Uses are
// not looked at. Errors: ErrNotQueued, ErrNotFound.
func (q *Queue) FailWaiting(ctx context.Context, key string, o Outcome) error {
	return q.end(ctx, o, failWaitingScript, key)
}

// end runs a script that ends a job.
func (q *Queue) end(ctx context.Context, o Outcome, s *redis.Script, args ...any) error {
	l := q.limit.Load()
	args = append(args, q.codec.compress(o.Entry), o.Summary, o.Reason, l.HistoryEntries, l.HistoryBytes, l.TenantHistory)
	args = append(args, o.Uses.args()...)
	code, _, err := q.run(ctx, s, args...)
	if err != nil {
		return err
	}
	return refusal(code)
}

// RequeueOptions say why a run goes back to the queue.
type RequeueOptions struct {
	// Reason is one line, kept in Job.Lost.
	Reason string
	// Excused runs do not count as attempts: the job was not to blame.
	Excused bool
	// Killed says that the instance died in the run. It counts as an attempt,
	// whatever Excused says.
	Killed bool
}

// MaxKills is how many instances may die while they run a job. One may have
// died of something else; after the second one it is the job, and no third
// one gets it.
const MaxKills = 2

// Requeue puts the job of a lost run back at its old place. Errors: ErrStale;
// ErrExhausted when it has no attempts left, or has killed too many instances
// (see Job.Kills), and ErrCancelled when its cancel
// was asked for. With the last two the job is given, too; the caller still
// holds the run and must Finish it; should the caller die first, the sweep
// hands the run to another hub.
func (q *Queue) Requeue(ctx context.Context, run job.Run, o RequeueOptions) (job.Job, error) {
	blame := "attempt"
	switch {
	case o.Killed:
		blame = "kill"
	case o.Excused:
		blame = "none"
	}
	code, fields, err := q.run(ctx, requeueScript, run.Key, run.Fence, o.Reason, blame, q.limit.Load().MaxAttempts, MaxKills)
	if err != nil {
		return job.Job{}, err
	}
	if code == "stale" {
		return job.Job{}, ErrStale
	}
	j, err := replied(fields).job()
	if err != nil {
		return job.Job{}, err
	}
	return j, refusal(code)
}
