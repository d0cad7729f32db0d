package engine

import (
	"sort"

	"github.com/tidwall/btree"
)

// sortedSet is a zset: members by score and, among equal scores, by their
// bytes.
type sortedSet struct {
	scores *btree.Map[string, float64]
	order  *btree.BTreeG[scored]
}

type scored struct {
	score  float64
	member string
}

func (a scored) before(b scored) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.member < b.member
}

func newSortedSet() *sortedSet {
	return &sortedSet{
		scores: new(btree.Map[string, float64]),
		order:  btree.NewBTreeGOptions(scored.before, btree.Options{NoLocks: true}),
	}
}

func (z *sortedSet) clone() *sortedSet {
	return &sortedSet{scores: z.scores.Copy(), order: z.order.Copy()}
}

func (z *sortedSet) len() int { return z.scores.Len() }

func (z *sortedSet) score(member string) (float64, bool) { return z.scores.Get(member) }

// put gives a member a score and reports whether it is new.
func (z *sortedSet) put(member string, score float64) bool {
	old, had := z.scores.Set(member, score)
	if had {
		if old == score {
			return false
		}
		z.order.Delete(scored{old, member})
	}
	z.order.Set(scored{score, member})
	return !had
}

// remove reports whether the member was there.
func (z *sortedSet) remove(member string) bool {
	score, had := z.scores.Delete(member)
	if had {
		z.order.Delete(scored{score, member})
	}
	return had
}

// rank is how many members come before this one.
func (z *sortedSet) rank(member string) (int, bool) {
	score, ok := z.scores.Get(member)
	if !ok {
		return 0, false
	}
	return z.countBefore(scored{score, member}), true
}

// countBefore is how many members come before a place in the order.
func (z *sortedSet) countBefore(pivot scored) int {
	return sort.Search(z.order.Len(), func(i int) bool {
		item, _ := z.order.GetAt(i)
		return !item.before(pivot)
	})
}

// slice gives the members with ranks from to to, both included.
func (z *sortedSet) slice(from, to int) []scored {
	if from > to {
		return nil
	}
	out := make([]scored, 0, to-from+1)
	first, ok := z.order.GetAt(from)
	if !ok {
		return nil
	}
	z.order.Ascend(first, func(item scored) bool {
		out = append(out, item)
		return len(out) <= to-from
	})
	return out
}

// between gives the members with scores in a range, from an offset on and at
// most limit of them; a negative limit is none.
func (z *sortedSet) between(r scoreRange, offset, limit int) []scored {
	var out []scored
	z.order.Ascend(scored{score: r.min}, func(item scored) bool {
		switch {
		case r.above(item.score):
			return false
		case r.below(item.score):
			return true
		case offset > 0:
			offset--
			return true
		case limit == 0:
			return false
		}
		limit--
		out = append(out, item)
		return true
	})
	return out
}

// scoreRange is a range of scores, each end included or not.
type scoreRange struct {
	min, max         float64
	minOpen, maxOpen bool
}

func (r scoreRange) below(score float64) bool { return score < r.min || r.minOpen && score == r.min }

func (r scoreRange) above(score float64) bool { return score > r.max || r.maxOpen && score == r.max }
