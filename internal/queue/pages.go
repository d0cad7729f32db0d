package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// LivePage returns limit of the jobs that [Queue.Live] lists for a tenant, or for all with "",
// starting at offset. It reads no others, however long the queue is. Jobs whose client has not been
// answered yet make a page shorter.
func (q *Listing) LivePage(ctx context.Context, tenant string, offset, limit int) ([]job.Job, error) {
	ranks, err := q.db.Client().ZRange(ctx, q.keys.live(tenant), int64(offset), int64(offset+limit-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	jobs, err := q.jobs(ctx, keysOf(ranks))
	return q.notAtDoor(jobs), err
}

// WaitingPage returns limit of the jobs of a tenant, or of all with "", that are waiting for an
// instance, in rank order and starting at offset. Paused ones are not among them.
func (q *Listing) WaitingPage(ctx context.Context, tenant string, offset, limit int) ([]job.Job, error) {
	var ranks []string
	for _, key := range waitsOf(q.keys, tenant) { // the bands, one after the other
		n, err := q.db.Client().ZCard(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
		if offset >= int(n) {
			offset -= int(n)
			continue
		}
		more, err := q.db.Client().ZRange(ctx, key, int64(offset), int64(offset+limit-len(ranks)-1)).Result()
		if err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
		if ranks, offset = append(ranks, more...), 0; len(ranks) >= limit {
			break
		}
	}
	jobs, err := q.jobs(ctx, keysOf(ranks))
	// Some may have been given out since.
	return slices.DeleteFunc(q.notAtDoor(jobs), func(j job.Job) bool { return j.State != job.Queued }), err
}

// Held returns the jobs of a tenant, or of all with "", that instances have, in rank order. It
// reads as many records as there are runs.
func (q *Listing) Held(ctx context.Context, tenant string) ([]job.Job, error) {
	keys, err := q.db.Client().ZRange(ctx, q.keys.leases(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	jobs, err := q.jobs(ctx, keys)
	jobs = slices.DeleteFunc(q.notAtDoor(jobs), func(j job.Job) bool {
		return j.State != job.Leased && j.State != job.Running || j.Withdrawn || tenant != "" && j.Tenant != tenant
	})
	slices.SortFunc(jobs, func(a, b job.Job) int { return strings.Compare(a.Rank, b.Rank) })
	return jobs, err
}

// Ends returns how many jobs have ended on all hubs since the queue began. Those that were
// cancelled while they waited do not count.
func (q *Listing) Ends(ctx context.Context) (int64, error) {
	n, err := q.db.Client().HGet(ctx, q.db.Key("q", "counters"), "ends").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("queue: %w", err)
	}
	return n, nil
}

// notAtDoor leaves out jobs whose client has not been answered yet.
func (q *Listing) notAtDoor(jobs []job.Job) []job.Job {
	now := q.Clock().Now()
	return slices.DeleteFunc(jobs, func(j job.Job) bool { return j.AtDoor(now) })
}
