package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// batchSize is how many keys one round trip or one script handles, so that neither the size of a
// reply nor the time of a script grows with the queue.
const batchSize = 256

// heavyBatch is the same for values that can be megabytes: a batch has to arrive within one
// timeout.
const heavyBatch = 16

// pipeline does n reads, batch by batch. Missing values are not errors.
func (q *store) pipeline(ctx context.Context, n, batch int, read func(p redis.Pipeliner, i int)) error {
	for begin := 0; begin < n; begin += batch {
		_, err := q.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := begin; i < min(begin+batch, n); i++ {
				read(p, i)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			q.doubt(err)
			return fmt.Errorf("queue: %w", err)
		}
	}
	return nil
}

// records reads fields of jobs; the records of unknown ones are empty.
func (q *store) records(ctx context.Context, keys []string, fields ...string) ([]record, error) {
	reads := make([]*redis.SliceCmd, len(keys))
	err := q.pipeline(ctx, len(keys), batchSize, func(p redis.Pipeliner, i int) {
		reads[i] = p.HMGet(ctx, q.keys.job(keys[i]), fields...)
	})
	if err != nil {
		return nil, err
	}
	records := make([]record, len(keys))
	for i, read := range reads {
		records[i] = make(record, len(fields))
		for f, value := range read.Val() {
			if text, ok := value.(string); ok {
				records[i][fields[f]] = text
			}
		}
	}
	return records, nil
}

// jobs reads jobs; unknown ones are skipped. A record that cannot be decoded is
// logged and skipped: one bad job must not break a listing for others.
func (q *store) jobs(ctx context.Context, keys []string) ([]job.Job, error) {
	records, err := q.records(ctx, keys, recordFields[:]...)
	if err != nil {
		return nil, err
	}
	jobs := make([]job.Job, 0, len(records))
	for i, r := range records {
		if r["state"] == "" {
			continue
		}
		j, err := r.job()
		if err != nil {
			q.log.Error("cannot read a job's record", "job", keys[i], "error", err)
			continue
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func keysOf(ranks []string) []string {
	keys := make([]string, len(ranks))
	for i, rank := range ranks {
		keys[i] = keyOf(rank)
	}
	return keys
}

// GetAll returns jobs by their keys; unknown ones are skipped.
func (q *Lookup) GetAll(ctx context.Context, keys []string) ([]job.Job, error) {
	return q.jobs(ctx, keys)
}

// Get returns a job: live, ended, or recently cancelled. Errors: ErrNotFound.
func (q *Lookup) Get(ctx context.Context, key string) (job.Job, error) {
	records, err := q.records(ctx, []string{key}, recordFields[:]...)
	if err != nil {
		return job.Job{}, err
	}
	if records[0]["state"] == "" {
		return job.Job{}, ErrNotFound
	}
	return records[0].job()
}

// Removed reports whether a job that Get does not find was removed on purpose within the last half hour,
// such as a part whose job has ended.
func (q *Lookup) Removed(ctx context.Context, key string) (bool, error) {
	n, err := q.db.Client().Exists(ctx, q.db.Key("q", "forgotten", key)).Result()
	if err != nil {
		return false, fmt.Errorf("queue: %w", err)
	}
	return n > 0, nil
}

// Find returns the newest job with this id. Errors: ErrNotFound.
func (q *Lookup) Find(ctx context.Context, tenant, id string) (job.Job, error) {
	key, err := q.db.Client().HGet(ctx, q.keys.ids(tenant), id).Result()
	if errors.Is(err, redis.Nil) {
		return job.Job{}, ErrNotFound
	}
	if err != nil {
		return job.Job{}, fmt.Errorf("queue: %w", err)
	}
	return q.Get(ctx, key)
}

// Positions tells where waiting jobs are: how many jobs of all tenants will be given out before each
// if nothing changes; 0 means it is next. If there are many tenants, it counts the jobs of the first
// hundred. A job that waits at an instance has only the run there before it. -1 stands for a job that
// does not wait, or is paused.
//
// This, and what Enqueue returns, is the only place that counts: whatever shows a position asks here.
func (q *Lookup) Positions(ctx context.Context, jobs ...job.Job) ([]int, error) {
	positions, asked := make([]int, len(jobs)), make([]int, 0, len(jobs))
	for n, j := range jobs {
		if positions[n] = -1; j.Ahead {
			positions[n] = 0
		} else if j.State == job.Queued && !j.Paused {
			asked = append(asked, n)
		}
	}
	for part := range slices.Chunk(asked, batchSize) {
		args := append(make([]any, 0, 1+2*len(part)), q.order())
		for _, n := range part {
			args = append(args, jobs[n].Rank, jobs[n].Tenant)
		}
		_, fields, err := q.run(ctx, positionScript, args...)
		if err != nil {
			return nil, err
		}
		if len(fields) != len(part) {
			return nil, fmt.Errorf("%w: %d positions of %d jobs", ErrCorrupt, len(fields), len(part))
		}
		for at, n := range part {
			if positions[n], err = strconv.Atoi(fields[at]); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		}
	}
	return positions, nil
}

// LiveKeys returns the keys of all running and waiting jobs in rank order.
func (q *Lookup) LiveKeys(ctx context.Context) ([]string, error) {
	ranks, err := q.db.Client().ZRange(ctx, q.keys.live(""), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return keysOf(ranks), nil
}

// Count returns the number of live jobs of a caller.
func (q *Lookup) Count(ctx context.Context, caller string) (int, error) {
	n, err := q.db.Client().ZCard(ctx, q.keys.caller(caller)).Result()
	if err != nil {
		return 0, fmt.Errorf("queue: %w", err)
	}
	return int(n), nil
}

// CountOf returns the number of live jobs of a tenant, and how many of them are
// waiting.
func (q *Lookup) CountOf(ctx context.Context, tenant string) (live, waiting int, err error) {
	n, err := q.db.Client().ZCard(ctx, q.keys.live(tenant)).Result()
	if err != nil {
		return 0, 0, fmt.Errorf("queue: %w", err)
	}
	waiting, _, err = q.Waiting(ctx, tenant)
	return int(n), waiting, err
}

// CountAll returns the number of live jobs of all tenants, how many of them are waiting, and how
// many of those are paused.
func (q *Lookup) CountAll(ctx context.Context) (live, waiting, paused int, err error) {
	var all, queued, parts, held *redis.IntCmd
	_, err = q.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		all, queued = p.ZCard(ctx, q.keys.live("")), p.ZCard(ctx, q.keys.waiting())
		parts = p.ZCard(ctx, q.db.Key("q", "parts"))
		held = p.ZCard(ctx, q.db.Key("q", "paused"))
		return nil
	})
	if err != nil {
		return 0, 0, 0, fmt.Errorf("queue: %w", err)
	}
	return int(all.Val()), int(queued.Val() - parts.Val() + held.Val()), int(held.Val()), nil
}

// Waiting returns the number of waiting jobs of a tenant, or of all with "", and the bytes of their
// bodies and secrets as they are stored.
func (q *Lookup) Waiting(ctx context.Context, tenant string) (jobs int, bytes int64, err error) {
	var number, size *redis.StringCmd
	_, err = q.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		number, size = p.HGet(ctx, q.keys.waitingJobs(), tenant), p.HGet(ctx, q.keys.waitingBytes(), tenant)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, 0, fmt.Errorf("queue: %w", err)
	}
	p := parser{r: record{"jobs": number.Val(), "bytes": size.Val()}}
	return int(p.int("jobs")), p.int("bytes"), p.err
}

// Body returns a live job's body with its secrets and requirements. Errors: ErrNotFound;
// ErrCorrupt; ErrSecrets, together with the rest of the body; ErrUnavailable. The process that
// holds the job's run need not ask Redis.
func (q *Lookup) Body(ctx context.Context, key string) (job.Body, error) {
	if own, ok := q.copies.body(key); ok {
		return q.open(ctx, own)
	}
	var stored, sealed, class *redis.StringCmd
	_, err := q.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		stored, sealed = p.Get(ctx, q.keys.body(key)), p.Get(ctx, q.keys.secret(key))
		class = p.HGet(ctx, q.keys.job(key), "class")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return job.Body{}, fmt.Errorf("queue: %w", err)
	}
	if errors.Is(stored.Err(), redis.Nil) {
		return job.Body{}, ErrNotFound
	}
	requires, err := q.db.Client().HGet(ctx, q.keys.class(class.Val()), "requires").Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return job.Body{}, fmt.Errorf("queue: %w", err)
	}
	read := copied{key: key, stored: []byte(stored.Val()), sealed: []byte(sealed.Val()), requires: string(requires)}
	body, err := q.open(ctx, read)
	if err == nil || errors.Is(err, ErrSecrets) || errors.Is(err, ErrUnavailable) { // but not what is corrupt
		q.copies.change(key, nil, func(c *copied) { c.stored, c.sealed, c.requires = read.stored, read.sealed, read.requires })
	}
	return body, err
}

// open decodes a body and decrypts its secrets.
func (q *store) open(ctx context.Context, c copied) (job.Body, error) {
	body, err := q.codec.decodeBody(c.stored)
	if err != nil {
		return job.Body{}, err
	}
	body.Requires = []byte(c.requires)
	if len(c.sealed) > 0 {
		body.Secrets, err = q.unseal(ctx, c.key, c.sealed)
	}
	return body, err
}

// Bodies returns the bodies of those of the jobs that are live, without their secrets and
// requirements, for listings. One that cannot be read is empty.
func (q *Lookup) Bodies(ctx context.Context, keys []string) (map[string]job.Body, error) {
	reads := make([]*redis.StringCmd, len(keys))
	err := q.pipeline(ctx, len(keys), heavyBatch, func(p redis.Pipeliner, i int) {
		reads[i] = p.Get(ctx, q.keys.body(keys[i]))
	})
	if err != nil {
		return nil, err
	}
	bodies := make(map[string]job.Body, len(keys))
	for i, read := range reads {
		if read.Err() != nil {
			continue
		}
		body, err := q.codec.decodeBody([]byte(read.Val()))
		if err != nil {
			q.log.Error("cannot read a job's body", "job", keys[i], "error", err)
		}
		bodies[keys[i]] = body
	}
	return bodies, nil
}
