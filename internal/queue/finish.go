package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Outcome is how a job ended.
type Outcome struct {
	// State is job.Done, job.Failed or job.Cancelled.
	State job.State
	// Entry is the history entry: any JSON, returned byte for byte.
	Entry []byte
	// Summary is what listings show of an ended job without reading its entry: opaque and small;
	// nil for none.
	Summary []byte
	// Reason says in plain words why the job failed; empty if it did not.
	Reason string
	// Uses are the files that the entry names.
	Uses Uses
	// Subject is what the result depends on, as package resultcache words it; empty if that is not
	// known. Only Finish looks at it, and only if the job is done.
	Subject string
}

// Uses are files in indexes of package files. The end of a run is recorded there as their last use,
// in the same step that writes the entry, so that entries and files expire together.
type Uses struct {
	// Indexes are keys of sorted sets, of the same Redis and prefix.
	Indexes []string
	// Members that are not in an index are skipped.
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

// Finish ends a run and its job, and writes the job's history entry, replacing one with the same
// id. It deletes the body and the API keys. Sending the same end twice is not an error. On the
// embedded server the end is on disk when Finish returns. Errors: ErrStale, in which case nothing
// was changed; ErrWithdrawn if the client had withdrawn the job, which has then ended without an
// entry.
func (q *RunEnds) Finish(ctx context.Context, run job.Run, o Outcome) error {
	_, err := q.FinishCounting(ctx, run, o)
	return err
}

// FinishCounting is Finish, and returns the Count of the job's caller right after the end.
func (q *RunEnds) FinishCounting(ctx context.Context, run job.Run, o Outcome) (left int, err error) {
	if !o.State.Ended() {
		return 0, fmt.Errorf("queue: %q is not an end", o.State)
	}
	e := q.stored(o.State, o)
	err = q.asHolder(ctx, run, func() error {
		reply, err := q.end(ctx, e, finishScript, run.Key, run.Fence, e.state, took(run), o.Subject)
		if err == nil && len(reply) > 0 {
			left, err = strconv.Atoi(reply[0])
		}
		return err
	})
	if errors.Is(err, ErrWithdrawn) {
		q.copies.forget(run.Key)
	}
	return left, err
}

// FailWaiting ends a waiting job that no instance can run. Outcome.State and Uses
// are ignored. Errors: ErrNotQueued, ErrNotFound.
func (q *RunEnds) FailWaiting(ctx context.Context, key string, o Outcome) error {
	_, err := q.end(ctx, q.stored(job.Failed, o), failWaitingScript, key)
	return err
}

// stored converts an outcome into what is written.
func (q *RunEnds) stored(state job.State, o Outcome) end {
	return end{
		state: string(state), reason: o.Reason, entry: q.codec.compress(o.Entry), summary: o.Summary, uses: o.Uses.args(),
	}
}

// end runs a script that ends a job, and returns what follows the code in its reply. key is the
// script's first argument.
func (q *RunEnds) end(ctx context.Context, e end, s *redis.Script, key string, args ...any) ([]string, error) {
	l := q.limit.Load()
	args = append([]any{key}, args...)
	args = append(args, e.entry, e.summary, e.reason, l.HistoryEntries, l.HistoryBytes, l.TenantHistory)
	code, reply, err := q.run(ctx, s, append(args, e.uses...)...)
	if err != nil {
		return nil, err
	}
	if code == "ok" {
		q.copies.change(key, nil, func(c *copied) { c.held, c.end = false, &e })
	}
	return reply, refusal(code)
}

// RequeueOptions say why a run goes back to the queue.
type RequeueOptions struct {
	// Reason is one line. Job.Lost keeps the last eight.
	Reason string
	// Excused runs do not count as attempts: the job was not at fault. MaxExcuses
	// and MaxReruns bound them.
	Excused bool
	// Hopeless means that no further attempt can work: the job gets none, whatever the other fields
	// say.
	Hopeless bool
	// Killed means that the instance died during the run. It counts as an attempt,
	// whatever Excused says.
	Killed bool
	// Failed means that the instance is added to Job.FailedAt: the job had better run on another
	// one.
	Failed bool
	// Unused means that the job was taken back from its instance, either because it was only
	// waiting there or because the operator wants it to run elsewhere. It leaves no trace, whatever
	// the other fields say.
	Unused bool
	// Pause is how long the job must wait before its next run, so that it does not run straight
	// into a fault that persists. 0 means not at all.
	Pause time.Duration
}

// MaxKills is how many instances may die while they run a job. The first may have died of something
// else; after the second the job is to blame, and no third instance gets it. An instance that dies
// twice counts as one: it may be to blame itself.
const MaxKills = 2

const (
	// MaxExcuses is how many runs of a job may be lost for reasons other than the job itself. There
	// has to be an end to it; with the pauses in between, the fault has lasted for hours by then.
	MaxExcuses = 500
	// MaxReruns is how many of these may have begun to execute: each has cost GPU time.
	MaxReruns = 8
	// maxReasons is the most entries that Job.Lost and Job.FailedAt have.
	maxReasons = 8
)

// Requeue puts the job of a lost run back in its old place. Errors: ErrStale; ErrExhausted if the
// job is hopeless, has no attempts left, was excused too often or has killed too many instances
// (see Job.Kills); ErrCancelled if its cancel was requested. The last two also return the job: the
// caller still holds the run and must Finish it. If the caller dies first, the sweep hands the run
// to another hub.
func (q *RunEnds) Requeue(ctx context.Context, run job.Run, o RequeueOptions) (job.Job, error) {
	blame := "attempt"
	switch {
	case o.Unused:
		blame, o.Reason = "unused", ""
	case o.Hopeless:
		blame = "hopeless"
	case o.Killed:
		blame = "kill"
	case o.Excused:
		blame = "none"
	}
	at := 0
	if o.Failed {
		at = 1
	}
	pause := int64(0)
	if o.Pause > 0 {
		pause = milliseconds(o.Pause)
	}
	var fields []string
	err := q.asHolder(ctx, run, func() error {
		code, reply, err := q.run(ctx, requeueScript, run.Key, run.Fence, o.Reason, blame,
			q.limit.Load().MaxAttempts, MaxKills, MaxExcuses, MaxReruns, pause, maxReasons, at)
		if err != nil {
			return err
		}
		fields = reply
		return refusal(code)
	})
	if err != nil && !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrCancelled) {
		return job.Job{}, err
	}
	r := replied(fields)
	j, failed := r.job()
	q.copies.change(run.Key, r, func(c *copied) { c.held = err != nil })
	if failed != nil {
		return job.Job{}, failed
	}
	return j, err
}
