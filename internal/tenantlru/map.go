// Package tenantlru keeps values by tenant for as long as there is room for them.
package tenantlru

import (
	"container/list"
	"sync"
)

// Bounds of a Map, in keys.
const (
	maxKeys          = 20_000
	maxKeysPerTenant = 10_000
)

// Map keeps values that may be forgotten, by tenant and key. When it is full it
// drops the values used longest ago: those of the tenant that adds one too many,
// or of the tenant that has the most. So one tenant cannot push out the values
// of the others. The zero Map is empty and ready to use.
type Map[V any] struct {
	mu      sync.Mutex
	tenants map[string]*values[V]
	size    int
}

// values are those of one tenant.
type values[V any] struct {
	keys map[string]*list.Element
	// used has the value used last first.
	used list.List
}

// entry is one value and its key.
type entry[V any] struct {
	key   string
	value V
}

// Change calls f with the value of a key, which is new and zero if the Map
// does not have the key.
func (m *Map[V]) Change(tenant, key string, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.tenants[tenant]
	if own == nil {
		if m.tenants == nil {
			m.tenants = map[string]*values[V]{}
		}
		own = &values[V]{keys: map[string]*list.Element{}}
		m.tenants[tenant] = own
	}
	e := own.keys[key]
	if e == nil {
		e = own.used.PushFront(&entry[V]{key: key})
		own.keys[key] = e
		m.size++
	}
	own.used.MoveToFront(e)
	f(&e.Value.(*entry[V]).value)
	switch {
	case len(own.keys) > maxKeysPerTenant:
		m.forgetOldest(tenant, own)
	case m.size > maxKeys:
		m.forgetOldest(m.largest())
	}
}

// Read calls f with the value of a key, if the Map has it.
func (m *Map[V]) Read(tenant, key string, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.tenants[tenant]
	if own == nil {
		return
	}
	if e := own.keys[key]; e != nil {
		f(&e.Value.(*entry[V]).value)
	}
}

func (m *Map[V]) largest() (tenant string, own *values[V]) {
	for name, r := range m.tenants {
		if own == nil || len(r.keys) > len(own.keys) {
			tenant, own = name, r
		}
	}
	return tenant, own
}

func (m *Map[V]) forgetOldest(tenant string, own *values[V]) {
	oldest := own.used.Back()
	own.used.Remove(oldest)
	delete(own.keys, oldest.Value.(*entry[V]).key)
	m.size--
	if len(own.keys) == 0 {
		delete(m.tenants, tenant)
	}
}
