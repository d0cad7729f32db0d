package sim

import (
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// item is a queued prompt.
type item struct {
	number  pyjson.Number // int if counted, float if the client sent it
	id      string
	graph   *pyjson.Object
	extra   *pyjson.Object
	outputs []string
	key     int // of the running table, set when taken
}

// less orders items the way Python orders the tuples (number, id, ...). tied
// reports that both are equal. In that case Python compares the graphs next and
// raises a TypeError.
func (it *item) less(other *item) (less, tied bool) {
	order, ok := python.Compare(it.number, other.number)
	switch {
	case !ok: // NaN
		return false, false
	case order == 0:
		return it.id < other.id, it.id == other.id
	}
	return order < 0, false
}

// promptHeap is a binary heap with exactly the moves of Python's heapq, because GET
// /queue shows the array, and because NaN numbers make the order depend on the
// moves.
type promptHeap []*item

// push adds an item. tied reports that a comparison met an equal item. Python then
// raises, but the new item stays in the heap.
func (h *promptHeap) push(it *item) (tied bool) {
	*h = append(*h, it)
	return h.siftDown(0, len(*h)-1)
}

func (h *promptHeap) siftDown(start, pos int) (tied bool) {
	s := *h
	moved := s[pos]
	for pos > start {
		parent := (pos - 1) / 2
		less, tie := moved.less(s[parent])
		if tie {
			s[pos] = moved
			return true
		}
		if !less {
			break
		}
		s[pos] = s[parent]
		pos = parent
	}
	s[pos] = moved
	return false
}

func (h *promptHeap) siftUp(pos int) {
	s := *h
	start, moved := pos, s[pos]
	for child := 2*pos + 1; child < len(s); child = 2*pos + 1 {
		if right := child + 1; right < len(s) {
			if less, _ := s[child].less(s[right]); !less {
				child = right
			}
		}
		s[pos] = s[child]
		pos = child
	}
	s[pos] = moved
	h.siftDown(start, pos)
}

func (h *promptHeap) pop() *item {
	s := *h
	last := s[len(s)-1]
	*h = s[:len(s)-1]
	if len(*h) == 0 {
		return last
	}
	first := s[0]
	s[0] = last
	h.siftUp(0)
	return first
}

// remove removes the item at index i and restores the heap.
func (h *promptHeap) remove(i int) {
	*h = append((*h)[:i], (*h)[i+1:]...)
	for j := len(*h)/2 - 1; j >= 0; j-- {
		h.siftUp(j)
	}
}
