package hub

import (
	"container/list"
	"sync"
)

// Bounds of a memory, in keys.
const (
	maxRemembered          = 20_000
	maxRememberedPerTenant = 10_000
)

// memory keeps values that may be forgotten, by tenant and key. When it is full
// the values used longest ago go: the tenant's own, or those of the tenant that
// has the most, so that nobody is forgotten because somebody else made noise.
type memory[V any] struct {
	mu      sync.Mutex
	tenants map[string]*recollection[V]
	size    int
}

// recollection is what is remembered for one tenant.
type recollection[V any] struct {
	keys map[string]*list.Element
	// used has the latest used first.
	used list.List
}

type remembered[V any] struct {
	key   string
	value V
}

// change calls f with the value of a key, which is new and zero if the key was
// not remembered.
func (m *memory[V]) change(tenant, key string, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.tenants[tenant]
	if own == nil {
		if m.tenants == nil {
			m.tenants = map[string]*recollection[V]{}
		}
		own = &recollection[V]{keys: map[string]*list.Element{}}
		m.tenants[tenant] = own
	}
	e := own.keys[key]
	if e == nil {
		e = own.used.PushFront(&remembered[V]{key: key})
		own.keys[key] = e
		m.size++
	}
	own.used.MoveToFront(e)
	f(&e.Value.(*remembered[V]).value)
	switch {
	case len(own.keys) > maxRememberedPerTenant:
		m.forgetOldest(tenant, own)
	case m.size > maxRemembered:
		m.forgetOldest(m.largest())
	}
}

// read calls f with the value of a key, if the key is remembered.
func (m *memory[V]) read(tenant, key string, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.tenants[tenant]
	if own == nil {
		return
	}
	if e := own.keys[key]; e != nil {
		f(&e.Value.(*remembered[V]).value)
	}
}

func (m *memory[V]) largest() (tenant string, own *recollection[V]) {
	for name, r := range m.tenants {
		if own == nil || len(r.keys) > len(own.keys) {
			tenant, own = name, r
		}
	}
	return tenant, own
}

func (m *memory[V]) forgetOldest(tenant string, own *recollection[V]) {
	oldest := own.used.Back()
	own.used.Remove(oldest)
	delete(own.keys, oldest.Value.(*remembered[V]).key)
	m.size--
	if len(own.keys) == 0 {
		delete(m.tenants, tenant)
	}
}
