package stream

import "slices"

// enter adds a running sequence that began elsewhere, ordered by its start.
func (l *line) enter(q *sequence) {
	i := slices.IndexFunc(l.running, func(other *sequence) bool { return other.at > q.at })
	if i < 0 {
		i = len(l.running)
	}
	l.running = slices.Insert(l.running, i, q)
	l.advance(false)
}

// drop forgets sequences without telling the client.
func (l *line) drop(which func(*sequence) bool) {
	drop := func(q *sequence) bool {
		if !which(q) {
			return false
		}
		q.over = true
		l.free(q)
		return true
	}
	l.running = slices.DeleteFunc(l.running, drop)
	l.waiting = slices.DeleteFunc(l.waiting, drop)
	l.sent = slices.DeleteFunc(l.sent, drop)
	l.advance(false)
}

// floor returns the lowest id of a sequence that is kept, or the highest possible
// number if there is none.
func (l *line) floor() uint64 {
	floor := ^uint64(0)
	for _, list := range [][]*sequence{l.running, l.waiting, l.sent} {
		for _, q := range list {
			floor = min(floor, q.id)
		}
	}
	return floor
}

// of returns a sequence of a job, nil if none is kept.
func (l *line) of(job string) *sequence {
	for _, list := range [][]*sequence{l.running, l.waiting, l.sent} {
		for _, q := range list {
			if q.job == job {
				return q
			}
		}
	}
	return nil
}

// acknowledge drops runs of this hub that the client has received from its owner.
func (l *line) acknowledge(ids []uint64) {
	for _, id := range ids {
		l.drop(func(q *sequence) bool { return q.over && q.remote == nil && q.id == id })
	}
}
