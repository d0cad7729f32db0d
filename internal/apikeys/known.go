package apikeys

import (
	"cmp"
	"context"
	"crypto/subtle"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// known are the keys as one hub knows them. Apart from the marks of their use, nothing in
// it changes.
type known struct {
	version string
	// revoked counts what had been revoked then.
	revoked int
	// refused are the records that are no keys.
	refused []Refused
	// read is when Redis said so.
	read time.Time
	// ahead is by how much Redis's clock is ahead of this one's.
	ahead  time.Duration
	byName map[string]*entry
	byHash map[hash]*entry
	// limits are those of tenants, from all their valid keys.
	limits map[string]Limits
	// next is when the next key expires; 0 if none does.
	next int64
}

// entry is a key that is known. It stays the same for as long as the key does.
type entry struct {
	Key

	hash hash
	// valid ends when the key is revoked or expires.
	valid context.Context // the life of the key, not of a call
	end   context.CancelFunc
	// used is when the key was used last here, noted is when Redis was told; both in
	// milliseconds by this hub's clock.
	used, noted atomic.Int64
}

func newEntry(key Key, sum hash) *entry {
	e := &entry{Key: key, hash: sum}
	e.valid, e.end = context.WithCancel(context.Background())
	return e
}

// now is the time by Redis's clock.
func (k *known) now() time.Time { return time.Now().Add(k.ahead) }

// take takes in all keys. An entry whose key has not changed goes on; those of keys that
// are gone end.
func (k *known) take(keys []valid, before *known) {
	k.byName, k.byHash = map[string]*entry{}, map[hash]*entry{}
	for _, key := range keys {
		var e *entry
		if before != nil {
			e = before.byHash[key.hash]
		}
		if e == nil {
			e = newEntry(key.Key, key.hash)
		}
		k.byName[key.Name], k.byHash[key.hash] = e, e
	}
	if before != nil {
		for sum, e := range before.byHash {
			if k.byHash[sum] == nil {
				e.end()
			}
		}
	}
	k.expire()
}

// expire ends keys whose time is over, and adds up the limits of the others. The limits of
// a tenant with several keys are those of the newest key that has any.
func (k *known) expire() {
	now := k.now()
	k.next = 0
	var valid []*entry
	for e := range maps.Values(k.byName) {
		switch {
		case e.expired(now):
			e.end()
			continue
		case e.Expires > 0 && (k.next == 0 || e.Expires < k.next):
			k.next = e.Expires
		}
		valid = append(valid, e)
	}
	slices.SortFunc(valid, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name))
	})
	k.limits = map[string]Limits{}
	for _, e := range valid {
		if e.Limits != (Limits{}) {
			k.limits[e.Tenant] = k.limits[e.Tenant].but(e.Limits)
		}
	}
}

// find returns the valid key of a secret.
func (k *known) find(secret string) *entry {
	sum := hashOf(secret)
	// Who knows no secret knows no hash, so that how long the map takes tells nothing.
	e := k.byHash[sum]
	if e == nil || subtle.ConstantTimeCompare(e.hash[:], sum[:]) != 1 || e.expired(k.now()) ||
		e.valid.Err() != nil { // it was revoked, and what is known now is about to be replaced
		return nil
	}
	return e
}

// unnoted are the names of the keys whose last use Redis does not know yet: once for each
// pause at most.
func (k *known) unnoted(pause time.Duration) (names []string, done func()) {
	var entries []*entry
	now := time.Now().UnixMilli()
	for _, e := range k.byName {
		if used, noted := e.used.Load(), e.noted.Load(); used > noted && now-noted >= pause.Milliseconds() {
			names, entries = append(names, e.Name), append(entries, e)
		}
	}
	return names, func() {
		for _, e := range entries {
			e.noted.Store(now)
		}
	}
}
