package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// FindAll returns the newest job for each of a tenant's ids, as [Queue.Find] does, in two round
// trips per 256 ids. Ids without a job are left out.
func (q *Lookup) FindAll(ctx context.Context, tenant string, ids []string) ([]job.Job, error) {
	var keys []string
	for batch := range slices.Chunk(ids, batchSize) {
		found, err := q.db.Client().HMGet(ctx, q.keys.ids(tenant), batch...).Result()
		if err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
		for _, key := range found {
			if key, ok := key.(string); ok {
				keys = append(keys, key)
			}
		}
	}
	return q.jobs(ctx, keys)
}

// FindOrGet returns a tenant's newest job with an id, or, if there is none, the job with this key if it
// is the tenant's; with "" only the key counts. Parts of other jobs, and jobs that were withdrawn, are
// not found. Errors: ErrNotFound.
func (q *Lookup) FindOrGet(ctx context.Context, tenant, idOrKey string) (job.Job, error) {
	j, err := job.Job{}, ErrNotFound
	if tenant != "" {
		j, err = q.Find(ctx, tenant, idOrKey)
	}
	if !errors.Is(err, ErrNotFound) || uuid.Validate(idOrKey) != nil {
		return j, err
	}
	j, err = q.Get(ctx, idOrKey)
	if err == nil && (tenant != "" && j.Tenant != tenant || j.Parent != "" || j.Withdrawn) {
		return job.Job{}, ErrNotFound
	}
	return j, err
}

// FindAnywhere returns the jobs with an id, whoever's they are: the newest of each tenant, in no
// order. It reads one field per tenant that has jobs, in batches of 256, so it is for operators.
func (q *Lookup) FindAnywhere(ctx context.Context, id string) ([]job.Job, error) {
	tenants, err := q.tenants(ctx)
	if err != nil {
		return nil, err
	}
	reads := make([]*redis.StringCmd, len(tenants))
	err = q.pipeline(ctx, len(tenants), batchSize, func(p redis.Pipeliner, i int) {
		reads[i] = p.HGet(ctx, q.keys.ids(tenants[i]), id)
	})
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, read := range reads {
		if key := read.Val(); key != "" {
			keys = append(keys, key)
		}
	}
	return q.jobs(ctx, keys)
}

// tenants returns those that have waiting, running or ended jobs, each once.
func (q *Lookup) tenants(ctx context.Context) ([]string, error) {
	var waiting, held, ended *redis.StringSliceCmd
	_, err := q.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting = p.HKeys(ctx, q.keys.waitingJobs()) // in the order in which jobs move on
		held = p.ZRange(ctx, q.keys.leases(), 0, -1)
		ended = p.ZRange(ctx, q.db.Key("q", "shares", "entries"), 0, -1)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("queue: %w", err)
	}
	names := slices.Concat(waiting.Val(), ended.Val())
	running, err := q.records(ctx, held.Val(), "tenant")
	for _, r := range running {
		names = append(names, r["tenant"])
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" }), err
}
