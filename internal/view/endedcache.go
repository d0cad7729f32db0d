package view

import (
	"context"
	"sync"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// endedCache keeps the records of ended jobs, which never change: a web interface asks for its
// history at every status message, and reading ten thousand records each time would keep Redis busy
// with nothing else. For each tenant it keeps what the tenant was shown last, so the whole is
// bounded as the history is, and no tenant's records push out another's.
type endedCache struct {
	mu sync.Mutex
	// tenants have records by job key. A tenant's map is replaced, never changed.
	tenants map[string]map[string]queue.Record
}

// of returns the records of a tenant's ended jobs, oldest first, and reads only those that it has
// not seen.
func (c *endedCache) of(ctx context.Context, q *queue.Queue, tenant string) ([]queue.Record, error) {
	keys, err := q.EndedKeys(ctx, tenant)
	if err != nil {
		return nil, err
	}
	records := make(map[string]queue.Record, len(keys))
	var unknown []string
	known := c.known(tenant)
	for _, key := range keys {
		if r, ok := known[key]; ok {
			records[key] = r
		} else {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		fresh, err := q.EndedOf(ctx, unknown)
		if err != nil {
			return nil, err
		}
		for _, r := range fresh {
			records[r.Job.Key] = r
		}
	}
	c.keep(tenant, records)
	out := make([]queue.Record, 0, len(keys))
	for _, key := range keys {
		if r, ok := records[key]; ok {
			out = append(out, r)
		}
	}
	return out, nil
}

func (c *endedCache) known(tenant string) map[string]queue.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tenants[tenant]
}

func (c *endedCache) keep(tenant string, records map[string]queue.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(records) == 0 {
		delete(c.tenants, tenant)
		return
	}
	if c.tenants == nil {
		c.tenants = map[string]map[string]queue.Record{}
	}
	c.tenants[tenant] = records
}
