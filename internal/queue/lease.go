package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Started records that the instance has started to execute: leased becomes running. Repeating it
// changes nothing. Errors: ErrStale; ErrCancelled for a run that is recorded all the same;
// ErrWithdrawn if its client has also withdrawn it.
func (q *LeasedRuns) Started(ctx context.Context, run job.Run) error {
	err := q.asHolder(ctx, run, func() error { return q.fenced(ctx, startedScript, run.Key, run.Fence) })
	if err == nil || errors.Is(err, ErrCancelled) {
		q.copies.change(run.Key, nil, func(c *copied) {
			if c.record["state"] == string(job.Leased) {
				c.record["state"], c.record["started"] = string(job.Running), strconv.FormatInt(q.Clock().Now().UnixMilli(), 10)
				if c.record["ahead"] != "" {
					c.record["ahead"] = ""
				}
			}
		})
	}
	return err
}

// Progress records how far the running node is, from 0 to 1. Call it at most once a second per run:
// it is for listings. Errors: ErrStale.
func (q *LeasedRuns) Progress(ctx context.Context, run job.Run, fraction float64) error {
	return q.fenced(ctx, progressScript, run.Key, run.Fence,
		strconv.FormatFloat(min(max(fraction, 0), 1), 'g', 4, 64))
}

// Preempt reports whether the run of a bulk job may be interrupted for a waiting interactive one.
// The same job is not interrupted again, and no other is interrupted for the waiting one until
// quiet has passed. Errors: ErrStale.
func (q *LeasedRuns) Preempt(ctx context.Context, run job.Run, waiting string, quiet time.Duration) (bool, error) {
	code, _, err := q.run(ctx, preemptScript, run.Key, run.Fence, waiting, quiet.Milliseconds())
	if err != nil || code == "refused" {
		return false, err
	}
	if err := refusal(code); err != nil {
		return false, err
	}
	q.copies.change(run.Key, nil, func(c *copied) { c.record["preempted"] = "1" })
	return true, nil
}

// Release frees the instance of a run that has ended there; the job stays with its holder, who
// collects its results. Errors: ErrStale.
func (q *LeasedRuns) Release(ctx context.Context, run job.Run) error {
	err := q.asHolder(ctx, run, func() error { return q.fenced(ctx, releaseScript, run.Key, run.Fence, took(run)) })
	if err == nil {
		q.copies.change(run.Key, nil, func(c *copied) { c.record["released"] = "1" })
	}
	return err
}

// took returns a run's Took or Told in the form that scripts take.
func took(run job.Run) string {
	switch {
	case run.Took > 0:
		return strconv.FormatInt(milliseconds(run.Took), 10)
	case run.Told > 0:
		return "told " + strconv.FormatInt(milliseconds(run.Told), 10)
	}
	return ""
}

// fenced runs a script that only answers with a code.
func (q *LeasedRuns) fenced(ctx context.Context, s *redis.Script, args ...any) error {
	code, _, err := q.run(ctx, s, args...)
	if err != nil {
		return err
	}
	return refusal(code)
}

// RenewResult tells a hub about the runs that it holds or thinks it holds.
type RenewResult struct {
	// Lost runs now belong to another holder, or their job has ended.
	Lost []job.Run
	// Cancelled runs are still held; their job's cancel was requested.
	Cancelled []job.Run
	// Withdrawn runs are cancelled too, and must not be shown to anybody.
	Withdrawn []job.Run
}

// Renew extends the leases of all of a hub's runs. Call it about three times per lease. It takes
// one script per renewedAtOnce runs, whatever has become of them: runs that are Lost may still be
// put back by [Queue.Recover]. After an error, the result has the runs that were asked about before
// it.
func (q *LeasedRuns) Renew(ctx context.Context, hub string, runs []job.Run) (RenewResult, error) {
	var result RenewResult
	for some := range slices.Chunk(runs, renewedAtOnce) {
		if err := q.renew(ctx, hub, some, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// renewedAtOnce bounds the runs that one script renews: Redis does nothing else meanwhile.
const renewedAtOnce = 50

// renew adds to the result what has become of these runs.
func (q *LeasedRuns) renew(ctx context.Context, hub string, runs []job.Run, result *RenewResult) error {
	args := make([]any, 0, 2+2*len(runs))
	args = append(args, hub, milliseconds(q.o.Lease))
	for _, run := range runs {
		args = append(args, run.Key, run.Fence)
	}
	_, codes, err := q.run(ctx, renewScript, args...)
	if err != nil {
		return err
	}
	if len(codes) != len(runs) {
		return fmt.Errorf("%w: %d answers to %d renewals", ErrCorrupt, len(codes), len(runs))
	}
	for i, code := range codes {
		switch code {
		case "lost":
			result.Lost = append(result.Lost, runs[i])
			continue
		case "cancelled":
			result.Cancelled = append(result.Cancelled, runs[i])
		case "withdrawn":
			result.Withdrawn = append(result.Withdrawn, runs[i])
		}
		q.copies.confirm(runs[i].Key, false)
	}
	return nil
}

// Recover puts back the runs that Renew found lost because Redis has lost them, and returns the
// others. It also copies held runs that have no copy yet. It may take long: no lease may depend on
// it.
func (q *LeasedRuns) Recover(ctx context.Context, held, lost []job.Run) (gone []job.Run, err error) {
	for _, run := range lost {
		if q.holds(run) {
			if restored, err := q.restore(ctx, run.Key); err != nil {
				return gone, err
			} else if restored {
				continue
			}
		}
		gone = append(gone, run)
	}
	if err := q.capture(ctx, held); err != nil {
		q.log.Debug("cannot copy runs", "error", err)
	}
	return gone, nil
}

// Orphan is a run taken over from another holder, with what its job's record says about it. The run
// has a new fence, so that whatever the old holder still sends is stale; the instance still knows
// it by Upstream and SID.
type Orphan struct {
	job.Run
	State job.State
	// Released means that the instance was free again and only the results were missing.
	Released bool
	// Exhausted means that the run is known to be lost and the job has no attempts left: it needs a
	// Finish.
	Exhausted bool
	// CancelAsked means that the job's cancel was requested.
	CancelAsked bool
}

// orphanFields is the number of values of an Orphan in a reply; see orphan() in
// lib.lua.
const orphanFields = 11

func readOrphans(values []string) ([]Orphan, error) {
	if len(values)%orphanFields != 0 {
		return nil, fmt.Errorf("%w: %d values of runs", ErrCorrupt, len(values))
	}
	var orphans []Orphan
	for ; len(values) > 0; values = values[orphanFields:] {
		p := parser{r: record{"rank": values[0], "fence": values[1], "lease": values[6]}}
		orphans = append(orphans, Orphan{
			Run: job.Run{
				Key:        values[0],
				Fence:      p.int("fence"),
				Instance:   values[2],
				Hub:        values[3],
				Upstream:   values[4],
				SID:        values[5],
				LeaseUntil: p.int("lease"),
			},
			State:       job.State(values[7]),
			Released:    values[8] == "1",
			Exhausted:   values[9] == "1",
			CancelAsked: values[10] != "",
		})
		if p.err != nil {
			return nil, p.err
		}
	}
	return orphans, nil
}

// Sweep hands runs whose lease has ended to the calling hub, at most limit of them, each with a new
// lease and a new fence: no two hubs get the same run. The hub then looks at the instance and
// follows, collects or requeues. Every hub sweeps about once a second.
//
// If no hub has swept for two thirds of a lease, Redis was probably unavailable and nobody could
// renew, or its clock was set forward. Leases that ended meanwhile are then extended once instead,
// so that their holders can renew them.
func (q *LeasedRuns) Sweep(ctx context.Context, hub string, limit int) ([]Orphan, error) {
	_, values, err := q.run(ctx, sweepScript, hub, milliseconds(q.o.Lease), limit)
	if err != nil {
		return nil, err
	}
	orphans, err := readOrphans(values)
	for _, o := range orphans {
		q.copies.forget(o.Key) // another hub may have changed it; Renew makes a new copy
	}
	return orphans, err
}

// copyAgain replaces the copy of a run that was just taken over: its former holder may have changed
// it. Without the new one, a Redis that loses its last writes would give the run back to that. If
// this fails, Recover makes the copy.
func (q *LeasedRuns) copyAgain(ctx context.Context, run job.Run) {
	q.copies.forget(run.Key)
	if q.copies == nil {
		return
	}
	if err := q.capture(ctx, []job.Run{run}); err != nil {
		q.log.Debug("cannot copy a run", "job", run.Key, "error", err)
	}
}

// takeOver runs a script that gives the run of a job to the caller.
func (q *LeasedRuns) takeOver(ctx context.Context, s *redis.Script, args ...any) (Orphan, error) {
	code, values, err := q.run(ctx, s, args...)
	if err != nil {
		return Orphan{}, err
	}
	if err := refusal(code); err != nil {
		return Orphan{}, err
	}
	orphans, err := readOrphans(values)
	if err != nil || len(orphans) != 1 {
		return Orphan{}, fmt.Errorf("%w: reply of %s: %w", ErrCorrupt, s.Name(), err)
	}
	q.copyAgain(ctx, orphans[0].Run)
	return orphans[0], nil
}

// Runs returns all held runs, including those whose lease has ended.
func (q *LeasedRuns) Runs(ctx context.Context) ([]job.Run, error) {
	held, err := q.db.Client().ZRange(ctx, q.keys.leases(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	jobs, err := q.jobs(ctx, held)
	if err != nil {
		return nil, err
	}
	var runs []job.Run
	for _, j := range jobs {
		if j.State == job.Leased || j.State == job.Running {
			runs = append(runs, j.Run)
		}
	}
	return runs, nil
}
