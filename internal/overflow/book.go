package overflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Book knows which jobs have a run at an endpoint. It is safe for concurrent use.
type Book struct {
	store store

	mu      sync.Mutex
	records map[string]record
}

// NewBook returns the book of a Redis. It knows nothing before [Book.Refresh].
func NewBook(db *redis.DB) *Book { return &Book{store: store{db}} }

// Refresh reads what all hubs know. The error is one of Redis.
func (b *Book) Refresh(ctx context.Context) error {
	records, err := b.store.all(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = records
	return nil
}

// Has returns the endpoint that has a run of a job which goes on, or whose files are there; empty if
// none has. barred says that the job must go to no endpoint.
func (b *Book) Has(job string) (endpoint string, barred bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, known := b.records[job]
	switch {
	case !known:
		return "", false
	case r.Phase == over || r.Ending:
		return "", true
	}
	return r.Endpoint, false
}

// Empty reports whether nothing is known of any run.
func (b *Book) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.records) == 0
}

// forgetAfter is how old a record is of which no hub takes care: each hub that has its endpoint would
// have removed it long ago, and no run takes that long.
const forgetAfter = 8 * 24 * time.Hour

// Forget removes old records of jobs that have ended, such as those of endpoints that no hub has any
// more. What was set aside for them counts as spent. The error is one of Redis.
func (b *Book) Forget(ctx context.Context, ended func(job string) bool) error {
	for job, rec := range b.snapshot() {
		if b.store.now()-rec.At < forgetAfter.Milliseconds() || !ended(job) {
			continue
		}
		if _, err := b.move(ctx, change{job: job, from: rec, cost: rec.Aside}); err != nil && !errors.Is(err, errChanged) {
			return fmt.Errorf("overflow: %w", err)
		}
	}
	return nil
}

// snapshot returns a copy of all records.
func (b *Book) snapshot() map[string]record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.records)
}

// move is store.move, and notes the change.
func (b *Book) move(ctx context.Context, c change) (record, error) {
	next, err := b.store.move(ctx, c)
	if err != nil {
		return next, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.to == nil {
		delete(b.records, c.job)
		return next, nil
	}
	if b.records == nil {
		b.records = map[string]record{}
	}
	b.records[c.job] = next
	return next, nil
}
