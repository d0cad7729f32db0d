package stream

// queue holds what is to be written to one socket, bounded in bytes. Its owner
// locks it.
type queue struct {
	items  []item
	head   int
	memory int64
	limit  int64
	ledger *ledger // of the tenant; nil counts nothing
}

// push adds an item. Over the limit it first drops all previews and progress but
// the newest. If that does not help, the client is not reading: push returns false
// and does not add the item. A single item always fits into an empty queue.
func (q *queue) push(it item) bool {
	size, limit := it.memory(), q.limit
	if q.ledger.pressed() {
		limit = min(limit, smallQueue)
	}
	if q.memory+size > limit && q.len() > 0 {
		q.shed()
		if q.memory+size > limit && q.len() > 0 {
			return false
		}
	}
	if it.frame != nil {
		it.frame.file.retain()
	}
	q.items = append(q.items, it)
	q.count(size)
	return true
}

// pop removes the oldest item. The caller releases its frame's file.
func (q *queue) pop() (it item, ok bool) {
	if q.len() == 0 {
		return item{}, false
	}
	it = q.items[q.head]
	q.items[q.head] = item{} // so that the frame can be garbage collected
	q.head++
	q.count(-it.memory())
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head >= 1024 && q.head*2 >= len(q.items):
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return it, true
}

func (q *queue) count(bytes int64) {
	q.memory += bytes
	q.ledger.keep(bytes)
}

func (q *queue) len() int { return len(q.items) - q.head }

// shed drops previews and progress, except the newest of each kind.
func (q *queue) shed() {
	var seen [Note + 1]bool
	kept := len(q.items)
	for i := len(q.items) - 1; i >= q.head; i-- {
		it := q.items[i]
		if it.frame != nil && it.frame.kind.shrinks() {
			if seen[it.frame.kind] {
				q.count(-it.memory())
				continue
			}
			seen[it.frame.kind] = true
		}
		kept--
		q.items[kept] = it
	}
	clear(q.items[q.head:kept])
	q.head = kept
}

// clear drops everything.
func (q *queue) clear() {
	for {
		it, ok := q.pop()
		if !ok {
			break
		}
		it.release()
	}
	q.items = nil
}

// memory is what the item costs while it is queued, in bytes.
func (it item) memory() int64 {
	if it.frame == nil {
		return frameOverhead
	}
	return it.frame.memory()
}

// release gives up the item's reference to a spill file.
func (it item) release() {
	if it.frame != nil {
		it.frame.file.release()
	}
}
