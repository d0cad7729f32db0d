package queue

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

const (
	// maxListed bounds what listings keep about waiting jobs, in bytes.
	maxListed = 32 << 20
	// listedFor is how long the jobs of a tenant are kept when nobody lists them.
	listedFor = time.Minute
	// listingTimeout bounds a reading that several callers share.
	listingTimeout = time.Minute
)

// listings keeps the parts of waiting jobs that do not change from one listing of a tenant to the
// next, and reads once for all who ask at the same time: pages ask for the whole queue at every
// status message.
type listings struct {
	mu      sync.Mutex
	tenants map[string]*tenantListing
	size    int64
}

// tenantListing is one tenant's part.
type tenantListing struct {
	// turn is full while the tenant's jobs are being read.
	turn chan struct{}
	// next is the reading that has not begun yet, for everybody who asks until it does; nil if
	// nobody has.
	next *reading
	// callers is how many are waiting for a reading.
	callers int
	// kept are waiting jobs that have never run, by rank.
	kept []*job.Job
	size int64
	used time.Time
}

// reading is one reading of a tenant's jobs. Its fields are set when done is closed; its callers
// share the jobs and must not change them.
type reading struct {
	done chan struct{}
	jobs []*job.Job
	err  error
}

// read returns a tenant's jobs from a call of the given read that begins after this call did. That
// function is given the jobs that are kept.
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
		// The first caller may go away while others are still waiting for the same reading.
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

// begin reads once the previous reading has ended.
func (l *listings) begin(ctx context.Context, tenant string, t *tenantListing, r *reading, read func(context.Context, []*job.Job) ([]*job.Job, error)) {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	l.mu.Lock()
	t.next = nil // anyone who asks from now on may ask for a job that this reading misses
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

// keep keeps the jobs of a listing that the next one need not read, as many as there is room for.
// It makes room by dropping those of other tenants.
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

// untouched reports whether a job is waiting as it was accepted: until it is given out, nothing
// about it changes but its reason, and its rank or its pause along with the sets of ranks.
func untouched(j *job.Job) bool {
	return j.State == job.Queued && j.Fence == 0 && !j.Paused && j.DoorUntil == 0
}

// listedSize returns roughly how many bytes a job takes.
func listedSize(j *job.Job) int64 {
	const fixed = 640
	return fixed + int64(len(j.ID)+len(j.Client)+len(j.Rank)+len(j.Shape)+len(j.BodyHash)+len(j.Reason)+len(j.Number))
}

// dropOldest drops what is kept about the tenant whose jobs were listed longest ago, except the
// tenant but. It reports whether there was any. The caller holds the lock.
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

// prune drops the tenants whose jobs nobody lists any more. The caller holds the lock.
func (l *listings) prune() {
	for name, t := range l.tenants {
		if t.callers == 0 && t.next == nil && (len(t.kept) == 0 || time.Since(t.used) > listedFor) {
			l.size -= t.size
			delete(l.tenants, name)
		}
	}
}
