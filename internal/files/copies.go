package files

import (
	"container/list"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/notebook"
)

const (
	// copyLife is how long a name that Redis has confirmed is kept, in case Redis loses its last
	// writes. A replica that lags further than that cannot be helped.
	copyLife = time.Minute
	// copyTrust is how long after that a name may be put back that the process before has given.
	copyTrust = 20 * time.Minute
	// noteBytes bounds what is noted of names for the next process.
	noteBytes = 32 << 20
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
	// book has them for the next process of this hub; nil if there is none.
	book *notebook.Book

	mu sync.Mutex
	// server is the incarnation of Redis to which all that is lost was last given back, and settled
	// says that this process has looked at it. Until then nothing is too old: the process before may
	// have ended a while ago.
	server  string
	settled bool
	names   map[nameKey]*list.Element
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
	c.put(key, e, time.Now())
	c.book.Add([]byte(c.server), []byte(key.tenant), []byte(key.place.typ), []byte(key.place.dir), []byte(key.place.name), []byte(e.raw))
}

// put keeps an entry that was confirmed at a time. The caller holds the lock.
func (c *copies) put(key nameKey, e Entry, at time.Time) {
	c.drop(key)
	c.names[key] = c.order.PushBack(&copied{key, e, at})
	c.prune(time.Now())
}

// noteParts are the parts of a note: a server, a name and its entry, which is empty for a name that
// was removed.
const noteParts = 6

// recall takes over what the process before has noted. Notes that it cannot read it skips: they may
// be those of another version.
func (c *copies) recall(n notebook.Note) {
	if len(n.Parts) < noteParts {
		return
	}
	text := func(i int) string { return string(n.Parts[i]) }
	key, raw := nameKey{text(1), place{text(2), text(3), text(4)}}, text(5)
	c.mu.Lock()
	defer c.mu.Unlock()
	if text(0) != "" {
		c.server = text(0)
	}
	if raw == "" {
		c.drop(key)
	} else if e, err := decodeEntry(raw, key.place); err == nil && time.Since(n.At) < copyTrust {
		c.put(key, e, n.At)
	}
}

// gaveBack notes that an incarnation of Redis has all that is known here.
func (c *copies) gaveBack(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.settled = server, true
}

// lacks reports whether an incarnation of Redis may lack what is known here.
func (c *copies) lacks(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != server
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
	if c.names[key] != nil {
		c.drop(key)
		c.book.Add([]byte(c.server), []byte(key.tenant), []byte(key.place.typ), []byte(key.place.dir), []byte(key.place.name), nil)
	}
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
		if (!c.settled || now.Sub(oldest.at) <= copyLife) && c.order.Len() <= maxCopies {
			return
		}
		c.drop(oldest.key)
	}
}
