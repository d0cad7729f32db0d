package queue

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Classes returns the classes that have waiting jobs, each with its requirements.
func (q *Queue) Classes(ctx context.Context) (map[string][]byte, error) {
	classes, err := q.db.Client().SMembers(ctx, q.keys.classes()).Result()
	if err != nil {
		return nil, err
	}
	requires := make([]*redis.StringCmd, len(classes))
	err = q.pipeline(ctx, len(classes), batchSize, func(p redis.Pipeliner, i int) {
		requires[i] = p.HGet(ctx, q.keys.class(classes[i]), "requires")
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(classes))
	for i, class := range classes {
		// The requirements of a class disappear with its last job.
		if text, err := requires[i].Bytes(); err == nil {
			out[class] = text
		}
	}
	return out, nil
}

// Peek returns the n best waiting jobs of the classes, in rank order. They may be
// gone by the time of a Claim, which decides.
func (q *Queue) Peek(ctx context.Context, classes []string, n int) ([]job.Job, error) {
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
	jobs, err := q.jobs(ctx, keysOf(ranks[:min(n, len(ranks))]))
	return slices.DeleteFunc(jobs, func(j job.Job) bool { return j.State != job.Queued }), err
}

// ClaimRequest asks for a run of a waiting job on an idle instance.
type ClaimRequest struct {
	Key      string
	Instance string
	// Hub is the id and boot of the hub that will hold the run.
	Hub string
	// Upstream is the prompt_id that the instance will know; a new one for each
	// request.
	Upstream string
	// SID is the client_id given to the instance.
	SID string
}

// Claim assigns a waiting job to an instance, and its run to a hub for the duration
// of a lease. The job's Run is the new run. Errors: ErrNotQueued, ErrTaken,
// ErrNotFound.
func (q *Queue) Claim(ctx context.Context, r ClaimRequest) (job.Job, error) {
	code, fields, err := q.run(ctx, claimScript,
		r.Key, r.Instance, r.Hub, r.Upstream, r.SID, milliseconds(q.o.Lease))
	if err != nil {
		return job.Job{}, err
	}
	if err := refusal(code); err != nil {
		return job.Job{}, err
	}
	return replied(fields).job()
}
