package hub

import (
	"context"
	"sync"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// maxEnded bounds the records that are kept in memory. A record is seldom
// larger than a kilobyte and never than twenty.
const maxEnded = 20_000

// endedCache keeps the records of ended jobs, which never change: a web
// interface asks for its history at every status message, and reading ten
// thousand records each time would keep Redis busy with nothing else.
type endedCache struct {
	mu      sync.Mutex
	records map[string]queue.Record // by job key
}

// of gives the records of a tenant's ended jobs, oldest first, and reads only
// those that it has not seen.
func (c *endedCache) of(ctx context.Context, q *queue.Queue, tenant string) ([]queue.Record, error) {
	keys, err := q.EndedKeys(ctx, tenant)
	if err != nil {
		return nil, err
	}
	records := make(map[string]queue.Record, len(keys))
	var unknown []string
	c.mu.Lock()
	for _, key := range keys {
		if r, ok := c.records[key]; ok {
			records[key] = r
		} else {
			unknown = append(unknown, key)
		}
	}
	c.mu.Unlock()
	if len(unknown) > 0 {
		fresh, err := q.EndedOf(ctx, unknown)
		if err != nil {
			return nil, err
		}
		c.keep(fresh)
		for _, r := range fresh {
			records[r.Job.Key] = r
		}
	}
	out := make([]queue.Record, 0, len(keys))
	for _, key := range keys {
		if r, ok := records[key]; ok {
			out = append(out, r)
		}
	}
	return out, nil
}

func (c *endedCache) keep(fresh []queue.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records == nil || len(c.records)+len(fresh) > maxEnded {
		c.records = map[string]queue.Record{} // what is still asked for is read again
	}
	for _, r := range fresh {
		c.records[r.Job.Key] = r
	}
}
