package view

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

const (
	// maxCachedBodies bounds the bodies that listings keep, in bytes as stored: compressed, some 5
	// kB each.
	maxCachedBodies = 32 << 20
	// cachedBatch is how many jobs are looked up at a time.
	cachedBatch = 256
	// bodiesKeptFor is how long the bodies of a tenant are kept when nobody lists them.
	bodiesKeptFor = time.Minute
)

// bodyCache keeps bodies of waiting and running jobs from one listing of a tenant to the next.
// Pages ask for the whole queue at every status message, and without it each of them would read all
// bodies from Redis again. A job's body never changes. The zero bodyCache is empty; it is safe for
// concurrent use.
type bodyCache struct {
	mu      sync.Mutex
	tenants map[string]*tenantBodies
	size    int64
}

// tenantBodies are one tenant's.
type tenantBodies struct {
	bodies map[string]StoredBody
	size   int64
	used   time.Time
}

// each passes the bodies of a tenant's jobs to use in the order of the keys. Those that are not
// kept are read from the queue.
func (c *bodyCache) each(ctx context.Context, q *queue.Queue, tenant string, keys []string, use func(StoredBody) error) error {
	for part := range slices.Chunk(keys, cachedBatch) {
		kept, missing := c.get(tenant, part)
		next := 0
		passKept := func(until string) error { // what is kept and comes before a key
			for ; next < len(part) && part[next] != until; next++ {
				if body, ok := kept[part[next]]; ok {
					if err := use(body); err != nil {
						return err
					}
				}
			}
			return nil
		}
		err := q.EachBody(ctx, missing, func(body StoredBody) error {
			if err := passKept(body.Key); err != nil {
				return err
			}
			next++
			c.put(tenant, body)
			return use(body)
		})
		if err == nil {
			err = passKept("")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// get returns what is kept about some jobs, and the keys of the others.
func (c *bodyCache) get(tenant string, keys []string) (kept map[string]StoredBody, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.tenants[tenant]
	if own == nil {
		return nil, keys
	}
	own.used = time.Now()
	kept = make(map[string]StoredBody, len(keys))
	for _, key := range keys {
		if body, ok := own.bodies[key]; ok {
			kept[key] = body
		} else {
			missing = append(missing, key)
		}
	}
	return kept, missing
}

// put keeps a body if there is room. It makes room by dropping the tenants whose listings were
// asked for longest ago, but never bodies of the tenant itself: listings read from first to last,
// so each would push out what the next begins with.
func (c *bodyCache) put(tenant string, body StoredBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if body.Held() > maxCachedBodies {
		return
	}
	for c.size+body.Held() > maxCachedBodies {
		oldest := ""
		for name, t := range c.tenants {
			if name != tenant && (oldest == "" || t.used.Before(c.tenants[oldest].used)) {
				oldest = name
			}
		}
		if oldest == "" {
			return
		}
		c.size -= c.tenants[oldest].size
		delete(c.tenants, oldest)
	}
	own := c.tenants[tenant]
	if own == nil {
		if c.tenants == nil {
			c.tenants = map[string]*tenantBodies{}
		}
		own = &tenantBodies{bodies: map[string]StoredBody{}, used: time.Now()}
		c.tenants[tenant] = own
	}
	if _, has := own.bodies[body.Key]; !has {
		own.bodies[body.Key] = body
		own.size += body.Held()
		c.size += body.Held()
	}
}

// retain drops what is kept about a tenant's jobs other than the live ones, and about tenants whose
// listings nobody reads any more.
func (c *bodyCache) retain(tenant string, live []job.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range c.tenants {
		if name != tenant && time.Since(t.used) > bodiesKeptFor {
			c.size -= t.size
			delete(c.tenants, name)
		}
	}
	own := c.tenants[tenant]
	if own == nil {
		return
	}
	still := 0
	for _, j := range live {
		if _, ok := own.bodies[j.Key]; ok {
			still++
		}
	}
	if still == len(own.bodies) && still > 0 {
		return
	}
	kept := make(map[string]StoredBody, still)
	var size int64
	for _, j := range live {
		if body, ok := own.bodies[j.Key]; ok {
			kept[j.Key] = body
			size += body.Held()
		}
	}
	c.size += size - own.size
	own.bodies, own.size = kept, size
	if len(kept) == 0 {
		delete(c.tenants, tenant)
	}
}
