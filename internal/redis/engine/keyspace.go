package engine

import (
	"time"

	"github.com/tidwall/btree"
)

// keyspace is all keys. Whoever uses it holds the engine's lock.
type keyspace struct {
	keys  *btree.Map[string, *value]
	epoch uint64
	// deadlines are the keys that expire, by when.
	deadlines *sortedSet
	// fresh lists the large strings that the current command has stored, with
	// their positions among its arguments.
	fresh []freshBlob
	// unread are the sizes of the arguments that a restore left in the file, by
	// position.
	unread map[int]int
	now    func() time.Time
}

type freshBlob struct {
	argument int
	blob     *blob
}

func newKeyspace(now func() time.Time) *keyspace {
	return &keyspace{keys: new(btree.Map[string, *value]), deadlines: newSortedSet(), now: now}
}

// get gives what a key holds, nil if there is no such key, and errWrongType if
// it is of another kind.
func (k *keyspace) get(key string, want kind) (*value, error) {
	v := k.peek(key)
	if v == nil {
		return nil, nil
	}
	if v.kind != want {
		return nil, errWrongType
	}
	return v, nil
}

// peek gives what a key holds, of whatever kind.
func (k *keyspace) peek(key string) *value {
	v, ok := k.keys.Get(key)
	if !ok {
		return nil
	}
	if v.expires != 0 && v.expires <= k.now().UnixMilli() {
		k.remove(key)
		return nil
	}
	return v
}

// change gives what a key holds for a change, new if there is no such key.
// The caller calls dropIfEmpty afterwards.
func (k *keyspace) change(key string, want kind) (*value, error) {
	v, err := k.get(key, want)
	if err != nil {
		return nil, err
	}
	switch {
	case v == nil:
		v = newValue(want)
	case v.epoch == k.epoch:
		return v, nil
	default:
		v = v.clone()
	}
	v.epoch = k.epoch
	k.keys.Set(key, v)
	return v, nil
}

// existing is change for a key that is there; nil if it is not.
func (k *keyspace) existing(key string, want kind) (*value, error) {
	if v, err := k.get(key, want); v == nil || err != nil {
		return nil, err
	}
	return k.change(key, want)
}

// dropIfEmpty removes a key whose value a change has emptied.
func (k *keyspace) dropIfEmpty(key string, v *value) {
	if v.empty() {
		k.remove(key)
	}
}

// set gives a key a string in place of whatever it holds.
func (k *keyspace) set(key string, text datum) {
	k.deadlines.remove(key)
	k.keys.Set(key, &value{kind: kindString, text: text, epoch: k.epoch})
}

// remove reports whether the key was there.
func (k *keyspace) remove(key string) bool {
	v, had := k.keys.Delete(key)
	if had && v.expires != 0 {
		k.deadlines.remove(key)
	}
	return had
}

// expireAt lets a key go at a time in milliseconds since 1970 and reports
// whether there is such a key.
func (k *keyspace) expireAt(key string, at int64) bool {
	v := k.peek(key)
	if v == nil {
		return false
	}
	v, _ = k.change(key, v.kind)
	v.expires = at
	k.deadlines.put(key, float64(at))
	return true
}

// expire removes up to limit keys whose time has come and reports whether
// there may be more.
func (k *keyspace) expire(limit int) bool {
	due := k.deadlines.between(scoreRange{max: float64(k.now().UnixMilli())}, 0, limit)
	for _, item := range due {
		k.remove(item.member)
	}
	return len(due) == limit
}

// store decides where a string is kept. argument is its position in the current
// command.
func (k *keyspace) store(text string, argument int) datum {
	size, unread := k.unread[argument]
	if !unread && len(text) < largeFrom {
		return datum{text: text}
	}
	b := newBlob(text)
	if unread {
		b.size = size // the restore says where it is
	}
	k.fresh = append(k.fresh, freshBlob{argument, b})
	return datum{blob: b}
}

// snapshot is all that there is now; it never changes.
func (k *keyspace) snapshot() *btree.Map[string, *value] {
	k.epoch++
	return k.keys.Copy()
}
