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

// Classes returns the classes with waiting jobs, each with its requirements.
func (q *WaitingJobs) Classes(ctx context.Context) (map[string][]byte, error) {
	classes, err := q.db.Client().SMembers(ctx, q.keys.classes()).Result()
	if err != nil {
		return nil, err
	}
	return q.Requirements(ctx, classes)
}

// Requirements returns the requirements of those of the classes that have live jobs.
func (q *WaitingJobs) Requirements(ctx context.Context, classes []string) (map[string][]byte, error) {
	out, unknown := q.requires.of(classes)
	requires := make([]*redis.StringCmd, len(unknown))
	err := q.pipeline(ctx, len(unknown), batchSize, func(p redis.Pipeliner, i int) {
		requires[i] = p.HGet(ctx, q.keys.class(unknown[i]), "requires")
	})
	if err != nil {
		return nil, err
	}
	for i, class := range unknown {
		// The requirements of a class disappear with its last job.
		if text, err := requires[i].Bytes(); err == nil {
			out[class] = text
			q.requires.keep(class, text)
		}
	}
	return out, nil
}

// Peek returns the n best waiting jobs of the classes, in rank order, including those that must not
// run yet. They may be gone by the time of a Claim, which decides.
func (q *WaitingJobs) Peek(ctx context.Context, classes []string, n int) ([]job.Job, error) {
	ranks, err := q.heads(ctx, classes, n)
	if err != nil {
		return nil, err
	}
	return q.queued(ctx, ranks)
}

// Window is a part of the waiting jobs.
type Window struct {
	// Jobs are those that may run now, in rank order.
	Jobs []job.Job
	// Next is how long until the first of the others may run; zero if all may.
	Next time.Duration
	// More says that other jobs are waiting behind these.
	More bool
	// Classes is the number of classes that have waiting jobs.
	Classes int
}

// Wanted says which waiting jobs are wanted; its zero value means all. It names the classes that
// are not wanted: that way classes that nobody has heard of yet are found, and the question is
// short if most classes are wanted.
type Wanted struct {
	// Reserved says that only jobs of the tenants in Own are wanted.
	Reserved bool
	// But are classes whose jobs are not wanted.
	But []string
	// Own are classes of which only some tenants' jobs are wanted. They take precedence over But.
	Own []Own
}

// Own are classes of which only the jobs of some tenants are wanted.
type Own struct{ Tenants, Classes []string }

// Window returns n of the wanted waiting jobs, in the order in which they are due, after skipping
// the first skip of them. It leaves out jobs that must not run yet, by Redis's clock, and jobs
// whose records cannot be read. What changes between two calls may be seen twice or not at all.
func (q *WaitingJobs) Window(ctx context.Context, wanted Wanted, skip, n int) (Window, error) {
	open := "1"
	if wanted.Reserved {
		open = "0"
	}
	args := make([]any, 0, 5+len(wanted.But))
	args = append(args, q.order(), max(skip, 0), max(n, 0), open, len(wanted.Own))
	for _, own := range wanted.Own {
		args = append(args, len(own.Tenants), len(own.Classes))
		args = appendAll(appendAll(args, own.Tenants), own.Classes)
	}
	args = appendAll(args, wanted.But)
	_, fields, err := q.run(ctx, windowScript, args...)
	if err != nil {
		return Window{}, err
	}
	p := parser{r: record{"next": fields[1], "classes": fields[2]}}
	w := Window{More: fields[0] == "1", Next: time.Duration(p.int("next")) * time.Millisecond, Classes: int(p.int("classes"))}
	for _, packed := range fields[3:] {
		record, _ := redis.Unpack(packed)
		j, err := replied(record).job()
		if err != nil {
			q.log.Error("cannot read a job's record", "job", j.Key, "error", err)
			continue
		}
		w.Jobs = append(w.Jobs, j)
	}
	return w, p.err
}

func appendAll(args []any, texts []string) []any {
	for _, text := range texts {
		args = append(args, text)
	}
	return args
}

// heads returns the ranks of the n best waiting jobs of the classes, in order.
func (q *WaitingJobs) heads(ctx context.Context, classes []string, n int) ([]string, error) {
	if n <= 0 || len(classes) == 0 {
		return nil, nil
	}
	heads := make([]*redis.StringSliceCmd, len(classes))
	err := q.pipeline(ctx, len(classes), batchSize, func(p redis.Pipeliner, i int) {
		heads[i] = p.ZRange(ctx, q.keys.wait(classes[i]), 0, int64(n-1))
	})
	if err != nil {
		return nil, err
	}
	var ranks []string
	for _, head := range heads {
		ranks = append(ranks, head.Val()...)
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	return ranks[:min(n, len(ranks))], nil
}

// queued returns the jobs with these ranks that are waiting.
func (q *WaitingJobs) queued(ctx context.Context, ranks []string) ([]job.Job, error) {
	jobs, err := q.jobs(ctx, keysOf(ranks))
	return slices.DeleteFunc(jobs, func(j job.Job) bool { return j.State != job.Queued }), err
}

// Taken returns the instances that have a run.
func (q *WaitingJobs) Taken(ctx context.Context) (map[string]bool, error) {
	holders, err := q.db.Client().HGetAll(ctx, q.keys.instances()).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	taken := make(map[string]bool, len(holders))
	for instance := range holders {
		taken[instance] = true
	}
	return taken, nil
}

// ClaimRequest asks for a run of a waiting job on an idle instance.
type ClaimRequest struct {
	Key string
	// Tenant is the job's; its weight counts.
	Tenant string
	// Instance is empty for a run that needs none.
	Instance string
	// Hub is the id and boot of the hub that will hold the run.
	Hub string
	// Upstream is the prompt_id that the instance will know; it must be new for each request.
	Upstream string
	// SID is the client_id given to the instance.
	SID string
	// Cost is how long the run will probably occupy the instance. The tenant is charged for it at
	// once, and for the actual time when the instance is free again. Default: 10 s.
	Cost time.Duration
	// Why says in plain words why the job goes to this instance; see [job.Job].
	Why string
	// Ahead allows the job to wait at the instance behind a run of the same hub. If it does, the
	// job's Ahead is true.
	Ahead bool
	// After is a run of the same hub that has ended at the instance, if there was one.
	// It is released, see [Queue.Release].
	After job.Run
}

// A tenant's weight outside these limits is clamped.
const minWeight, maxWeight = 0.001, 1000

// Claim assigns a waiting job to an instance, and its run to a hub for the duration of a lease. The
// job's Run is the new run. Errors: ErrNotQueued, ErrTaken, ErrCapped, ErrNotFound; ErrUnavailable,
// also for a moment after Redis was restarted, see [Queue.Heal].
func (q *LeasedRuns) Claim(ctx context.Context, r ClaimRequest) (job.Job, error) {
	j, _, err := q.ClaimCounting(ctx, r)
	return j, err
}

// ClaimCounting is Claim, and returns how many classes still have waiting jobs.
func (q *LeasedRuns) ClaimCounting(ctx context.Context, r ClaimRequest) (j job.Job, classes int, err error) {
	if err := q.ready(ctx); err != nil {
		return job.Job{}, 0, err
	}
	limit := q.limit.Load()
	weight := min(max(limit.Weight(r.Tenant), minWeight), maxWeight)
	running, daily := limit.TenantRuns(r.Tenant)
	cost := ""
	if r.Cost > 0 {
		cost = strconv.FormatInt(milliseconds(r.Cost), 10)
	}
	ahead := ""
	if r.Ahead {
		ahead = "1"
	}
	code, fields, err := q.run(ctx, claimScript, r.Key, r.Instance, r.Hub, r.Upstream, r.SID, milliseconds(q.o.Lease),
		cost, weight, ahead, r.After.Key, r.After.Fence, running, daily.Milliseconds(), took(r.After), r.Why)
	if err != nil {
		return job.Job{}, 0, err
	}
	if err := refusal(code); err != nil {
		return job.Job{}, 0, err
	}
	p := parser{r: record{"classes": fields[0]}}
	classes = int(p.int("classes"))
	claimed := replied(fields[1:])
	j, err = claimed.job()
	q.copies.change(r.Key, claimed, func(c *copied) {
		c.held, c.former = true, false
		if claimed["parent"] != "" { // see Redo: no other job runs once it has ended
			c.end = nil
		}
	})
	q.copies.change(r.After.Key, nil, func(c *copied) {
		if fenceOf(c.record) == r.After.Fence {
			c.record["released"] = "1"
		}
	})
	return j, classes, errors.Join(err, p.err)
}
