package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// settleTime is how long no job is claimed after Redis was restarted or replaced: a job that seems
// to be waiting may be running, and its hub has yet to say so.
const settleTime = time.Second

// healing is what Heal knows about Redis.
type healing struct {
	// turn is held while Redis is being asked.
	turn *semaphore.Weighted
	seen string // the last incarnation; "" before the first
	// begun means that Heal has succeeded once.
	begun bool
	// doubt means that Redis has been unavailable since it was last checked.
	doubt   atomic.Bool
	settled atomic.Pointer[time.Time]
}

// Heal puts back what Redis has lost of the jobs that this process holds, or has accepted, removed or
// ended within the last minute, if Redis was restarted or replaced since the last call: a replica
// that takes over may lag, and a crash may lose the last second. With Options.Notes, the jobs of the
// process before count too, and its last call. Call it at the start, after each
// Resync, and from time to time. If it fails, the next call does what is left to do.
func (q *Recovery) Heal(ctx context.Context) error {
	if q.copies == nil {
		return nil
	}
	if err := q.heal.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer q.heal.turn.Release(1)
	now, err := q.db.Incarnation(ctx)
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if (now != q.heal.seen || !q.heal.begun) && q.o.HealFirst != nil {
		if err := q.o.HealFirst(ctx); err != nil {
			return err
		}
	}
	if now == q.heal.seen || q.heal.seen == "" {
		q.saw(now)
		q.copies.prune(time.Now())
		return nil
	}
	until := time.Now().Add(settleTime)
	q.heal.settled.Store(&until)
	restored := 0
	keys := q.copies.keys()
	for _, key := range keys {
		done, err := q.restore(ctx, key)
		if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err != nil { // something is wrong with this one; the others go on
			q.log.Error("cannot put back a job", "job", key, "error", err)
		}
		if done {
			restored++
		}
	}
	q.saw(now)
	q.log.Info("Redis was restarted or replaced", "checked", len(keys), "put_back", restored)
	return nil
}

// saw notes that an incarnation of Redis has all that this process knows. The caller has the turn.
func (q *Recovery) saw(incarnation string) {
	q.heal.seen, q.heal.begun = incarnation, true
	q.copies.gaveBack(incarnation)
}

// ready returns nil if jobs may be claimed, or why not. Errors: ErrUnavailable.
func (q *Recovery) ready(ctx context.Context) error {
	if q.copies == nil {
		return nil
	}
	if q.heal.doubt.Swap(false) {
		if err := q.Heal(ctx); err != nil {
			q.heal.doubt.Store(true)
			return err
		}
	}
	if until := q.heal.settled.Load(); until != nil && time.Now().Before(*until) {
		return fmt.Errorf("%w: it has just come back, and hubs are checking what it has lost", ErrUnavailable)
	}
	return nil
}

// restore puts back what Redis has lost of one job. It reports whether anything was missing.
func (q *Recovery) restore(ctx context.Context, key string) (done bool, err error) {
	c, ok := q.copies.get(key)
	if !ok {
		return false, nil
	}
	if c.gone {
		return q.removeAgain(ctx, key)
	}
	lease, pause := "", milliseconds(settleTime)
	if c.held || c.former {
		lease, pause = strconv.FormatInt(milliseconds(q.o.Lease), 10), 0
	}
	e, delivered := c.end, ""
	if e == nil {
		e = &end{}
	} else {
		pause = 0
	}
	if c.delivered {
		delivered = "1"
	}
	l := q.limit.Load()
	args := []any{
		key, c.stored, c.sealed, c.requires, lease, pause, e.state, e.entry, e.summary, e.reason,
		l.HistoryEntries, l.HistoryBytes, l.TenantHistory, delivered, len(c.record),
	}
	for name, value := range c.record {
		args = append(args, name, value)
	}
	code, _, err := q.run(ctx, restoreScript, append(args, e.uses...)...)
	switch {
	case err != nil:
		return false, err
	case code == "stale":
		q.copies.forget(key)
	case code == "ok":
		q.copies.confirm(key, true)
		q.log.Warn("Redis had lost a job, which was put back", "job", key, "held", c.held, "ended", c.end != nil)
	}
	return code == "ok", nil
}

// removeAgain removes a job whose removal Redis may have lost, and lets no other hub put it back. It
// reports whether the job was there.
func (q *Recovery) removeAgain(ctx context.Context, key string) (done bool, err error) {
	code, _, err := q.run(ctx, removeAgainScript, key, milliseconds(q.o.Tombstone))
	if err != nil {
		return false, err
	}
	if code == "ok" {
		q.copies.confirm(key, true)
		q.log.Warn("Redis had lost that a job was cancelled, which was done again", "job", key)
	}
	return code == "ok", nil
}

// asHolder makes a change to a run. If Redis knows nothing of the run, it may have lost it: then
// the run is put back, and the change is made again.
func (q *Recovery) asHolder(ctx context.Context, run job.Run, change func() error) error {
	err := change()
	if !errors.Is(err, ErrStale) || !q.holds(run) {
		return err
	}
	done, failed := q.restore(ctx, run.Key)
	if failed != nil {
		return failed
	}
	if done {
		return change()
	}
	return err
}

// holds reports whether this process has a copy of a run and holds the run.
func (q *Recovery) holds(run job.Run) bool {
	c, ok := q.copies.get(run.Key)
	return ok && c.held && c.record["fence"] == strconv.FormatInt(run.Fence, 10)
}

// capture copies runs that were taken over from other hubs.
func (q *Recovery) capture(ctx context.Context, runs []job.Run) error {
	keys := q.copies.lacking(runs)
	fences := make(map[string]string, len(runs))
	for _, run := range runs {
		fences[run.Key] = strconv.FormatInt(run.Fence, 10)
	}
	records := make([]*redis.MapCmd, len(keys))
	bodies, secrets := make([]*redis.StringCmd, len(keys)), make([]*redis.StringCmd, len(keys))
	err := q.pipeline(ctx, len(keys), heavyBatch, func(p redis.Pipeliner, i int) {
		records[i] = p.HGetAll(ctx, q.keys.job(keys[i]))
		bodies[i], secrets[i] = p.Get(ctx, q.keys.body(keys[i])), p.Get(ctx, q.keys.secret(keys[i]))
	})
	if err != nil {
		return err
	}
	requires := make([]*redis.StringCmd, len(keys))
	err = q.pipeline(ctx, len(keys), batchSize, func(p redis.Pipeliner, i int) {
		requires[i] = p.HGet(ctx, q.keys.class(records[i].Val()["class"]), "requires")
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		r := record(records[i].Val())
		if s := job.State(r["state"]); s != job.Leased && s != job.Running || r["fence"] != fences[key] || bodies[i].Err() != nil {
			continue // it has ended, or changed hands
		}
		q.copies.change(key, r, func(c *copied) {
			c.held, c.former = true, false
			c.stored, c.sealed = []byte(bodies[i].Val()), []byte(secrets[i].Val())
			c.requires = requires[i].Val()
		})
	}
	return nil
}
