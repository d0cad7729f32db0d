package userdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Limits bound what one tenant may store over all its users. Zero means no limit.
type Limits struct {
	Bytes int64
	// Files includes folders, because each is an object of the storage.
	Files int
}

var (
	// ErrFull means that a tenant may not store more.
	ErrFull = errors.New("userdata: the tenant's space is used up")
	// ErrFullFiles is the ErrFull of Limits.Files.
	ErrFullFiles = fmt.Errorf("%w: too many files", ErrFull)
)

const (
	// usageFor is how long a listing of a tenant's files is used; changes made by
	// this hub are added to it, those of other hubs show later.
	usageFor = time.Minute
	// maxUsages bounds the tenants whose usage is remembered; forgetting one costs
	// a listing.
	maxUsages = 1000
)

// usage is what a tenant has stored.
type usage struct {
	bytes int64
	files int
	at    time.Time
}

// usages remembers what tenants have stored.
type usages struct {
	mu sync.Mutex
	of map[string]usage
}

func (u *usages) get(tenant string) (usage, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, ok := u.of[tenant]
	return known, ok && time.Since(known.at) < usageFor
}

func (u *usages) set(tenant string, now usage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[string]usage{}
	}
	if _, known := u.of[tenant]; !known && len(u.of) >= maxUsages {
		for other := range u.of { // any of them
			delete(u.of, other)
			break
		}
	}
	u.of[tenant] = now
}

// freed subtracts what was deleted.
func (u *usages) freed(tenant string, bytes int64, files int) {
	if known, ok := u.get(tenant); ok {
		known.bytes -= bytes
		known.files -= files
		u.set(tenant, known)
	}
}

// quota is what a tenant may store in addition to what it has, for one change; the
// tenant's lock is held.
type quota struct {
	store  *Store
	tenant string
	limits Limits
	now    usage
	// bounded is false if there are no limits: nothing is counted then.
	bounded bool
}

// quota reads what the tenant has, if there are limits.
func (f Folder) quota(ctx context.Context) (*quota, error) {
	q := &quota{store: f.store, tenant: f.tenant, limits: f.store.limits(f.tenant)}
	if q.bounded = q.limits != (Limits{}); !q.bounded {
		return q, nil
	}
	now, ok := f.store.usage.get(f.tenant)
	if !ok {
		now = usage{at: time.Now()}
		err := f.store.storage.List(ctx, tenantPrefix(f.tenant), func(b Blob) error {
			now.bytes += b.Size
			now.files++
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("userdata: %w", err)
		}
	}
	q.now = now
	return q, nil
}

// take counts files that are created.
func (q *quota) take(files int) error {
	if q.limits.Files > 0 && q.now.files+files > q.limits.Files {
		return ErrFullFiles
	}
	q.now.files += files
	return nil
}

// free subtracts what is replaced or deleted.
func (q *quota) free(bytes int64, files int) {
	q.now.bytes -= bytes
	q.now.files -= files
}

// bound passes on as much of r as there is space for, counts it, and then fails
// with ErrFull.
func (q *quota) bound(r io.Reader) io.Reader { return &quotaReader{r: r, quota: q} }

type quotaReader struct {
	r     io.Reader
	quota *quota
}

// Read implements io.Reader.
func (b *quotaReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	q := b.quota
	q.now.bytes += int64(n)
	if q.limits.Bytes > 0 && n > 0 && q.now.bytes > q.limits.Bytes {
		return 0, ErrFull
	}
	return n, err
}

// settle remembers what the tenant has after the change.
func (q *quota) settle() {
	if q.bounded {
		q.store.usage.set(q.tenant, q.now)
	}
}
