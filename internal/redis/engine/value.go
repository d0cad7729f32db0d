package engine

import (
	"slices"

	"github.com/tidwall/btree"
)

// value is what a key holds: one of the kinds of Redis. The fields of the
// other kinds are nil.
type value struct {
	// epoch is the keyspace's when the value was made or copied. A value of an
	// earlier epoch is part of a snapshot and must be copied before a change.
	epoch uint64
	// expires is when the key goes, in milliseconds since 1970; 0 is never.
	expires int64

	kind kind
	text datum
	hash *btree.Map[string, datum]
	set  *btree.Map[string, struct{}]
	list []string
	zset *sortedSet
}

// kind is a type of Redis, as the command TYPE names it.
type kind string

const (
	kindString kind = "string"
	kindHash   kind = "hash"
	kindList   kind = "list"
	kindSet    kind = "set"
	kindZset   kind = "zset"
)

func newValue(k kind) *value {
	v := &value{kind: k}
	switch k {
	case kindHash:
		v.hash = new(btree.Map[string, datum])
	case kindSet:
		v.set = new(btree.Map[string, struct{}])
	case kindZset:
		v.zset = newSortedSet()
	case kindString, kindList: // nothing to make
	}
	return v
}

// clone copies a value for a change. The trees are shared until one of both
// changes; a list is copied, since lists are short.
func (v *value) clone() *value {
	c := *v
	switch v.kind {
	case kindHash:
		c.hash = v.hash.Copy()
	case kindSet:
		c.set = v.set.Copy()
	case kindList:
		c.list = slices.Clone(v.list)
	case kindZset:
		c.zset = v.zset.clone()
	case kindString: // never changes
	}
	return &c
}

// empty reports whether nothing is left, so that the key goes.
func (v *value) empty() bool {
	switch v.kind {
	case kindHash:
		return v.hash.Len() == 0
	case kindSet:
		return v.set.Len() == 0
	case kindList:
		return len(v.list) == 0
	case kindZset:
		return v.zset.len() == 0
	case kindString: // an empty one is a value, too
	}
	return false
}
