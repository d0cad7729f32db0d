package files

import (
	"container/list"
	"sync"
	"time"
)

const (
	// copyLife is how long a name that Redis has confirmed is kept, in case Redis loses its last
	// writes. A replica that lags further than that cannot be helped.
	copyLife = time.Minute
	// maxCopies bounds the names kept; the oldest go first.
	maxCopies = 20000
)

// nameKey is a name that belongs to a tenant.
type nameKey struct {
	tenant string
	place  place
}

// copied is an entry as Redis has confirmed it.
type copied struct {
	key   nameKey
	entry Entry // with its raw form
	at    time.Time
}

// copies are the names that this process has recently given: a Redis that comes back without its
// last writes gets back what it has lost. With the embedded server there are none, since that dies
// with the process.
type copies struct {
	mu    sync.Mutex
	names map[nameKey]*list.Element
	// order has them as *copied, the one confirmed longest ago at the front.
	order *list.List
}

func newCopies() *copies { return &copies{names: map[nameKey]*list.Element{}, order: list.New()} }

// note keeps an entry that Redis has confirmed.
func (c *copies) note(key nameKey, e Entry) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
	c.names[key] = c.order.PushBack(&copied{key, e, time.Now()})
	c.prune(time.Now())
}

// has reports whether there is a copy of a name.
func (c *copies) has(key nameKey) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prune(time.Now())
	return c.names[key] != nil
}

// forget drops the copy of a name that was removed.
func (c *copies) forget(key nameKey) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
}

// list returns the copies, those confirmed longest ago first.
func (c *copies) list() []copied {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prune(time.Now())
	out := make([]copied, 0, c.order.Len())
	for at := c.order.Front(); at != nil; at = at.Next() {
		out = append(out, *at.Value.(*copied)) //nolint:forcetypeassert // nothing else is put there
	}
	return out
}

// drop forgets a copy. The caller holds the lock.
func (c *copies) drop(key nameKey) {
	if at := c.names[key]; at != nil {
		c.order.Remove(at)
		delete(c.names, key)
	}
}

// prune drops what is old enough to be safe, and what is too much. The caller holds the lock.
func (c *copies) prune(now time.Time) {
	for at := c.order.Front(); at != nil; at = c.order.Front() {
		oldest := at.Value.(*copied) //nolint:forcetypeassert // nothing else is put there
		if now.Sub(oldest.at) <= copyLife && c.order.Len() <= maxCopies {
			return
		}
		c.drop(oldest.key)
	}
}
