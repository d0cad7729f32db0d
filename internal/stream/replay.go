package stream

import "slices"

// replay sends the sequence of an ended prompt again, if it is still known.
func (l *line) replay(prompt string) bool {
	of := func(q *sequence) bool { return q.prompt == prompt }
	if slices.ContainsFunc(l.waiting, of) || slices.ContainsFunc(l.running, of) {
		return true // it has yet to be sent
	}
	i := slices.IndexFunc(l.sent, of)
	if i < 0 {
		return false
	}
	if l.forwarding {
		return true // the owner has it, and knows better what the client was told
	}
	q := l.sent[i]
	l.sent = slices.Delete(l.sent, i, i+1)
	q.open, q.mark, q.again = false, 0, true
	l.waiting = append(l.waiting, q)
	l.advance(false)
	return true
}
