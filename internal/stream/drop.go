package stream

// Shows reports whether the client has been shown messages of a running job. If the
// client's socket is at another hub, that is unknown and Shows returns false.
func (s *Streams) Shows(k Key, job string) (shown bool) {
	s.clients.change(k, false, func(c *client) {
		q := c.line.lists.of(job)
		shown = q != nil && q.shown(&c.line)
	})
	return shown
}

// Drop removes a running job from its client's stream because the client has
// withdrawn it. If the client has not been shown any of the job, it never will be;
// otherwise the prompt ends with the given end messages.
func (s *Streams) Drop(k Key, job string, end ...Message) {
	s.clients.change(k, false, func(c *client) {
		q := c.line.lists.of(job)
		switch {
		case q == nil || q.over:
		case q.shown(&c.line):
			c.line.end(q, end)
		default:
			c.line.lose(q)
		}
	})
}

// shown reports whether the client sees a running sequence. A forwarder opens all
// sequences, whatever the client sees at the other hub.
func (q *sequence) shown(l *line) bool { return q.open && !q.over && !l.to.forwarding }
