package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// KeepResult notes what the result of a job depended on, as package resultcache words it, for as
// long as the history has the job. Errors: ErrNotFound if it has not.
func (q *EndedJobs) KeepResult(ctx context.Context, key, subject, stamp string) error {
	code, _, err := q.run(ctx, keepResultScript, key, subject, stamp)
	if err != nil {
		return err
	}
	return refusal(code)
}

// EqualTo returns the last job of the same tenant that ended well and whose result depended on the
// same as that of a job: before that job, if it has ended itself, else before now. subject is what its
// result depends on, which is not needed of a job that has ended. Errors: ErrNotFound.
func (q *EndedJobs) EqualTo(ctx context.Context, j job.Job, subject string) (job.Job, error) {
	from, field := q.db.Key("q", "results", j.Tenant), subject
	if j.State.Ended() {
		from, field = q.keys.job(j.Key), "equal"
	}
	key, err := q.db.Client().HGet(ctx, from, field).Result()
	if errors.Is(err, redis.Nil) || err == nil && key == "" {
		return job.Job{}, ErrNotFound
	}
	if err != nil {
		return job.Job{}, fmt.Errorf("queue: %w", err)
	}
	records, err := q.records(ctx, []string{key}, recordFields[:]...)
	if err != nil {
		return job.Job{}, err
	}
	if records[0]["rank"] == "" {
		return job.Job{}, ErrNotFound
	}
	equal, err := records[0].job()
	if err == nil && (equal.State != job.Done || equal.Tenant != j.Tenant || equal.Key == j.Key) {
		err = ErrNotFound
	}
	return equal, err
}

// ResultOf returns the last job of a tenant that ended well and whose result depended on the same,
// and its stamp. Errors: ErrNotFound.
func (q *EndedJobs) ResultOf(ctx context.Context, tenant, subject string) (j job.Job, stamp string, err error) {
	key, err := q.db.Client().HGet(ctx, q.db.Key("q", "results", tenant), subject).Result()
	if errors.Is(err, redis.Nil) {
		return job.Job{}, "", ErrNotFound
	}
	if err != nil {
		return job.Job{}, "", fmt.Errorf("queue: %w", err)
	}
	records, err := q.records(ctx, []string{key}, append([]string{"result", "stamp"}, recordFields[:]...)...)
	if err != nil {
		return job.Job{}, "", err
	}
	r := records[0]
	if r["state"] != string(job.Done) || r["tenant"] != tenant || r["result"] != subject {
		return job.Job{}, "", ErrNotFound
	}
	j, err = r.job()
	return j, r["stamp"], err
}
