package queue

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

const (
	// maxListed bounds what listings keep of waiting jobs, in bytes.
	maxListed = 32 << 20
	// listedFor is how long the jobs of a tenant are kept that nobody lists.
	listedFor = time.Minute
	// listingTimeout bounds a reading that several callers share.
	listingTimeout = time.Minute
)

// listings keeps what does not change of waiting jobs from one listing of a tenant to
// the next, and reads once for all who ask at the same time: pages ask for the whole
// queue at every status message.
type listings struct {
	mu      sync.Mutex
	tenants map[string]*tenantListing
	size    int64
}

// tenantListing is that of one tenant.
type tenantListing struct {
	// turn is full while the tenant's jobs are read.
	turn chan struct{}
	// next is the reading that has not begun yet, for all who ask until then; nil if
	// nobody does.
	next *reading
	// callers is how many wait for a reading.
	callers int
	// kept are waiting jobs that have never run, by rank.
	kept []*job.Job
	size int64
	used time.Time
}

// reading is one reading of a tenant's jobs. Its fields are set when done is closed; its
// callers share the jobs and must not change them.
type reading struct {
	done chan struct{}
	jobs []*job.Job
	err  error
}

// read returns a tenant's jobs as read gives them, which begins after this call did. It
// gets the jobs that are kept.
func (l *listings) read(ctx context.Context, tenant string, read func(ctx context.Context, kept []*job.Job) ([]*job.Job, error)) ([]*job.Job, error) {
	l.mu.Lock()
	t := l.tenants[tenant]
	if t == nil {
		if l.tenants == nil {
			l.tenants = map[string]*tenantListing{}
		}
		t = &tenantListing{turn: make(chan struct{}, 1)}
		l.tenants[tenant] = t
	}
	t.callers++
	t.used = time.Now()
	r := t.next
	if r == nil {
		r = &reading{done: make(chan struct{})}
		t.next = r
		// The first caller may go away while others still wait for the same reading.
		go l.begin(context.WithoutCancel(ctx), tenant, t, r, read)
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.callers--
		l.prune()
	}()
	select {
	case <-r.done:
		return r.jobs, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin reads when the reading before has ended.
func (l *listings) begin(ctx context.Context, tenant string, t *tenantListing, r *reading, read func(context.Context, []*job.Job) ([]*job.Job, error)) {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	l.mu.Lock()
	t.next = nil // who asks from now on may ask for a job that is not in this one
	kept := t.kept
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	r.jobs, r.err = read(ctx, kept)
	if r.err == nil {
		l.keep(tenant, t, r.jobs)
	}
	close(r.done)
}

// keep keeps the jobs of a listing that the next one need not read, as many as there is
// room for. It makes room by dropping those of other tenants.
func (l *listings) keep(tenant string, t *tenantListing, jobs []*job.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size -= t.size
	t.kept, t.size = make([]*job.Job, 0, len(jobs)), 0
	for _, j := range jobs {
		if !untouched(j) {
			continue
		}
		size := listedSize(j)
		for l.size+t.size+size > maxListed && l.dropOldest(tenant) {
		}
		if l.size+t.size+size > maxListed {
			break
		}
		t.kept, t.size = append(t.kept, j), t.size+size
	}
	l.size += t.size
}

// untouched reports whether a job waits as it was accepted: until it is given out, nothing
// of it changes but its reason, and its rank or its pause with the sets of ranks.
func untouched(j *job.Job) bool {
	return j.State == job.Queued && j.Fence == 0 && !j.Paused && j.DoorUntil == 0
}

// listedSize is roughly how many bytes a job takes.
func listedSize(j *job.Job) int64 {
	const fixed = 640
	return fixed + int64(len(j.ID)+len(j.Client)+len(j.Rank)+len(j.Shape)+len(j.BodyHash)+len(j.Reason)+len(j.Number))
}

// dropOldest drops what is kept of the tenant whose jobs were listed longest ago, but not
// of one. It reports whether there was any. The lock is held.
func (l *listings) dropOldest(but string) bool {
	var oldest *tenantListing
	for name, t := range l.tenants {
		if name != but && t.size > 0 && (oldest == nil || t.used.Before(oldest.used)) {
			oldest = t
		}
	}
	if oldest == nil {
		return false
	}
	l.size -= oldest.size
	oldest.kept, oldest.size = nil, 0
	return true
}

// prune drops the tenants whose jobs nobody lists any more. The lock is held.
func (l *listings) prune() {
	for name, t := range l.tenants {
		if t.callers == 0 && t.next == nil && (len(t.kept) == 0 || time.Since(t.used) > listedFor) {
			l.size -= t.size
			delete(l.tenants, name)
		}
	}
}
