package stream

import "slices"

// lists are the sequences of a client. Each is in one of three lists: running (one sequence is open,
// the others are held), waiting (it ended while another was open), or sent (the client has not
// confirmed it yet).
type lists struct {
	running []*sequence // in the order in which they began
	waiting []*sequence // in the order in which they ended
	sent    []*sequence // in the order in which they are (to be) sent
}

func (l *lists) all() [3][]*sequence { return [3][]*sequence{l.running, l.waiting, l.sent} }

// enter adds a running sequence that began elsewhere, ordered by its start.
func (l *lists) enter(q *sequence) {
	i := slices.IndexFunc(l.running, func(other *sequence) bool { return other.at > q.at })
	if i < 0 {
		i = len(l.running)
	}
	l.running = slices.Insert(l.running, i, q)
}

// empty reports whether nothing is kept.
func (l *lists) empty() bool { return len(l.running)+len(l.waiting)+len(l.sent) == 0 }

// floor returns the lowest id of a sequence that is kept, or the highest possible
// number if there is none.
func (l *lists) floor() uint64 {
	floor := ^uint64(0)
	for _, list := range l.all() {
		for _, q := range list {
			floor = min(floor, q.id)
		}
	}
	return floor
}

// of returns a sequence of a job, nil if none is kept.
func (l *lists) of(job string) *sequence {
	for _, list := range l.all() {
		for _, q := range list {
			if q.job == job {
				return q
			}
		}
	}
	return nil
}

// largest returns the sequence of the given detail that uses the most memory.
func (l *lists) largest(d detail) (found *sequence) {
	for _, list := range l.all() {
		for _, q := range list {
			if q.log.detail == d && (found == nil || q.log.memory > found.log.memory) {
				found = q
			}
		}
	}
	return found
}

// owes reports whether the client has yet to confirm the end of a job, or of a prompt that was told
// again from the history. The end comes, or came, on its present socket, or will on the next one.
func (l *lists) owes(prompt, job string) bool {
	return slices.ContainsFunc(slices.Concat(l.running, l.waiting, l.sent), func(q *sequence) bool {
		return q.prompt == prompt && (q.job == job || q.job == "")
	})
}

// written records which sequences were written to the socket completely.
func (l *lists) written(mark uint64) {
	for _, q := range l.sent {
		if q.mark != 0 && q.mark <= mark {
			q.told, q.toldHere = true, true
		}
	}
}

// closed records that the client closed the socket, without a close frame, right after the sequence
// with that mark, the newest one, was written to it.
func (l *lists) closed(mark uint64) {
	for _, q := range l.sent {
		q.closed = q.closed || q.mark != 0 && q.mark == mark
	}
}

// doubtful reports whether the client may already have read something that would be
// sent again.
func (l *lists) doubtful() bool {
	told := func(q *sequence) bool { return q.told }
	return slices.ContainsFunc(l.sent, told) || slices.ContainsFunc(l.waiting, told)
}
