package queue

import (
	"context"
	"fmt"
)

// HeadKeys returns the keys of the first n running and waiting jobs of a tenant, or of all tenants
// with "", in rank order. Unlike Live it costs the same however many jobs are waiting.
func (q *WaitingJobs) HeadKeys(ctx context.Context, tenant string, n int) ([]string, error) {
	if n <= 0 {
		return nil, nil
	}
	ranks, err := q.db.Client().ZRange(ctx, q.keys.live(tenant), 0, int64(n-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return keysOf(ranks), nil
}
