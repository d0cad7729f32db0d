package queue

import (
	"container/list"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

const (
	// copyLife is how long anything that Redis has confirmed is kept, in case Redis loses its last
	// writes. A replica that lags further than that cannot be helped.
	copyLife = time.Minute
	// copyBytes bounds the copies of jobs that are not running; the oldest go first.
	copyBytes = 64 << 20
	// copyTrust is how long after Redis's last word on a job its copy may be put back. It is
	// shorter than the life of q:forgotten.
	copyTrust = 20 * time.Minute
)

// copied is what this process knows about a job because Redis has confirmed it.
type copied struct {
	key    string
	record record
	// stored and sealed are the body and the API keys as Redis stores them; nil if this process has
	// never seen them.
	stored, sealed []byte
	requires       string
	// held means that this process holds the job's run. former means that the process before this
	// one held it, and that nobody was seen to hold it since.
	held, former bool
	// end is how the job ended; nil while it lives.
	end       *end
	delivered bool
	// gone means that the job was removed while it waited, or deleted from the history. Of such a job
	// nothing else is known.
	gone bool
	// at is when Redis last confirmed any of this.
	at time.Time
	// place is the copy's place in the order of these times; nil while it is held.
	place *list.Element
}

// end is an end in its stored form.
type end struct {
	state, reason  string
	entry, summary []byte
	uses           []any
}

func (c *copied) size() (n int64) {
	n = int64(len(c.stored) + len(c.sealed) + len(c.requires) + 1024)
	if c.end != nil {
		n += int64(len(c.end.entry) + len(c.end.summary))
	}
	return n
}

// copies are the jobs that this process has recently changed, as it knows them: a Redis that is
// restored from older data, or replaced by a replica that lags, gets back what it has lost. With
// the embedded server there are none, since that dies with the process.
type copies struct {
	mu    sync.Mutex
	notes notes
	jobs  map[string]*copied
	// idle are those that are not held, the one confirmed longest ago at the front, and bytes is
	// their size.
	idle  *list.List
	bytes int64
}

func newCopies() *copies { return &copies{jobs: map[string]*copied{}, idle: list.New()} }

// change calls f with the copy of a job, creating it if there is a record. The copy keeps the
// record unless that is older: a job may be claimed before the call that accepted it gets here.
func (c *copies) change(key string, r record, f func(*copied)) {
	if c == nil || key == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[key]
	if j == nil && r == nil {
		return
	}
	news := parts{}
	if j != nil {
		news = parts{body: j.stored != nil, end: j.end != nil}
	}
	c.put(key, time.Now(), func(j *copied) {
		if r != nil && fenceOf(r) >= fenceOf(j.record) {
			j.record = r
		}
		f(j)
		c.notes.add(j, parts{body: !news.body && j.stored != nil, end: !news.end && j.end != nil})
	})
}

// put calls f with the copy of a job, new or old, as it is confirmed at a time. The caller holds the
// lock.
func (c *copies) put(key string, at time.Time, f func(*copied)) {
	j := c.jobs[key]
	if j == nil {
		j = &copied{key: key, record: record{}}
		c.jobs[key] = j
	} else {
		c.count(j, -1)
	}
	j.at = at
	f(j)
	c.count(j, 1)
	for c.bytes > copyBytes {
		c.drop(c.oldest())
	}
}

// confirm notes that Redis has just confirmed what is known of a job. again says that it was put
// back there: then it may be lost again.
func (c *copies) confirm(key string, again bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[key] == nil {
		return
	}
	c.put(key, time.Now(), func(j *copied) {
		if again {
			c.notes.add(j, parts{body: j.stored != nil, end: j.end != nil})
		}
	})
}

// fenceOf returns the fence of a record, which each claim raises.
func fenceOf(r record) int64 {
	fence, _ := strconv.ParseInt(r["fence"], 10, 64)
	return fence
}

// count adds a copy to the idle ones, or takes it out. The caller holds the lock.
func (c *copies) count(j *copied, sign int64) {
	switch {
	case sign < 0 && j.place != nil:
		c.idle.Remove(j.place)
		j.place = nil
		c.bytes -= j.size()
	case sign > 0 && !j.held:
		j.place = c.idle.PushBack(j)
		c.bytes += j.size()
	}
}

// oldest returns the idle copy that was confirmed longest ago; nil if there is none. The caller
// holds the lock.
func (c *copies) oldest() *copied {
	if front := c.idle.Front(); front != nil {
		return front.Value.(*copied) //nolint:forcetypeassert // nothing else is put there
	}
	return nil
}

// drop forgets a copy. The caller holds the lock.
func (c *copies) drop(j *copied) {
	c.count(j, -1)
	delete(c.jobs, j.key)
}

// forget drops the copies of jobs that were removed or now belong to somebody else.
func (c *copies) forget(keys ...string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.forgo(c.jobs[key])
	}
}

// forgo drops a copy that must not be put back, if there is one. The caller holds the lock.
func (c *copies) forgo(j *copied) {
	if j != nil {
		c.drop(j)
		c.notes.forget(j.key)
	}
}

// remove replaces the copies of jobs that were removed while they waited with a mark that they are
// gone. Those whose run this process holds were waiting at their instance: they are marked as
// withdrawn, which lasts tombstone milliseconds, and end soon.
func (c *copies) remove(tombstone int64, keys ...string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		j := c.jobs[key]
		if j != nil && j.held {
			j.record["cancel"], j.record["withdrawn"] = "1", strconv.FormatInt(tombstone, 10)
			c.notes.add(j, parts{})
			continue
		}
		c.bury(key)
	}
}

// bury replaces what is known of a job with a mark that it is gone. The caller holds the lock.
func (c *copies) bury(key string) {
	if j := c.jobs[key]; j != nil {
		c.drop(j)
	}
	c.put(key, time.Now(), func(j *copied) {
		j.gone = true
		c.notes.add(j, parts{})
	})
}

// deleted is remove for jobs that were deleted from the history.
func (c *copies) deleted(keys ...string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if c.jobs[key] != nil { // for others it is too late to be put back
			c.bury(key)
		}
	}
}

// deletedEnds is deleted for a tenant's ended jobs with these ids.
func (c *copies) deletedEnds(tenant string, ids []string) {
	if c == nil {
		return
	}
	named := make(map[string]bool, len(ids))
	for _, id := range ids {
		named[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if j.end != nil && j.record["tenant"] == tenant && named[j.record["id"]] {
			c.bury(j.key)
		}
	}
}

// overheard drops the copy of a job whose end another hub has announced: that hub has the end
// itself.
func (c *copies) overheard(e Event) {
	if c == nil || e.Kind != Ended {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.jobs[e.Key]; j != nil && !j.held && j.end == nil && !j.gone {
		c.forgo(j)
	}
}

// prune drops what is old enough to be safe.
func (c *copies) prune(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for j := c.oldest(); j != nil && now.Sub(j.at) > copyLife; j = c.oldest() {
		c.drop(j)
	}
}

// get returns a copy as it stands now; ok is false if there is none, or if it is too old to be
// trusted.
func (c *copies) get(key string) (out copied, ok bool) {
	if c == nil {
		return copied{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[key]
	if j == nil || time.Since(j.at) > copyTrust {
		return copied{}, false
	}
	out = *j
	out.record = maps.Clone(j.record)
	return out, true
}

// body returns the copy of a job whose run this process holds, with the body; ok is false if there
// is none. If another hub has taken over the run meanwhile, this hub's next change is refused.
func (c *copies) body(key string) (out copied, ok bool) {
	if c == nil {
		return copied{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[key]
	if j == nil || !j.held || j.stored == nil || j.end != nil {
		return copied{}, false
	}
	return copied{key: key, stored: j.stored, sealed: j.sealed, requires: j.requires}, true
}

// keys returns the jobs that have a copy, those confirmed longest ago first.
func (c *copies) keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.SortedFunc(maps.Values(c.jobs), func(a, b *copied) int { return a.at.Compare(b.at) })
	keys := make([]string, len(list))
	for i, j := range list {
		keys[i] = j.key
	}
	return keys
}

// lacking returns the runs that have no complete copy.
func (c *copies) lacking(runs []job.Run) (keys []string) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, run := range runs {
		if j := c.jobs[run.Key]; j == nil || j.stored == nil {
			keys = append(keys, run.Key)
		}
	}
	return keys
}
