package userdata

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// turns let each tenant make one change at a time. A storage may take long over one, so
// nobody waits for another tenant, nor longer than for an answer that is still wanted.
type turns struct {
	mu sync.Mutex
	of map[string]*turn // of the tenants with changes
}

// turn is that of one tenant.
type turn struct {
	*semaphore.Weighted

	changes int // that have it or wait for it
}

// take waits for a tenant's turn. The caller must call leave, unless there is an error,
// which is the context's.
func (t *turns) take(ctx context.Context, tenant string) (leave func(), err error) {
	one := t.join(tenant)
	if err := one.Acquire(ctx, 1); err != nil {
		t.quit(tenant)
		return nil, err
	}
	return func() {
		one.Release(1)
		t.quit(tenant)
	}, nil
}

func (t *turns) join(tenant string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	one := t.of[tenant]
	if one == nil {
		one = &turn{Weighted: semaphore.NewWeighted(1)}
		t.of[tenant] = one
	}
	one.changes++
	return one
}

func (t *turns) quit(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[tenant].changes--; t.of[tenant].changes == 0 {
		delete(t.of, tenant)
	}
}
