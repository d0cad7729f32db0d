package stream

// Shows reports whether a running job is one of which the client has been shown
// messages. Where the client's socket is at another hub that is not known, and
// Shows is false.
func (s *Streams) Shows(k Key, job string) (shown bool) {
	s.change(k, false, func(c *client) {
		q := c.line.of(job)
		shown = q != nil && q.shown(&c.line)
	})
	return shown
}

// Drop takes a running job out of its client's stream: the client has taken it
// back. If the client has been shown none of it, it never will be; else it is
// told that the prompt has ended, with the given end messages.
func (s *Streams) Drop(k Key, job string, end ...Message) {
	s.change(k, false, func(c *client) {
		q := c.line.of(job)
		switch {
		case q == nil || q.over:
		case q.shown(&c.line):
			c.line.end(q, end)
		default:
			c.line.lose(q)
		}
	})
}

// shown reports whether the client sees a running sequence. To a courier all
// sequences are open, whatever the client sees at the other hub.
func (q *sequence) shown(l *line) bool { return q.open && !q.over && !l.courier }
