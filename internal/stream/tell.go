package stream

// This file is for ends that another hub should have brought and, perhaps,
// could not: they are rebuilt from the history, and told once.

// Holds reports whether the client's stream is held here: it has a socket, or
// had one so lately that it is expected back.
func (s *Streams) Holds(k Key) (holds bool) {
	s.change(k, false, func(c *client) { holds = c.socket != nil || c.here() })
	return holds
}

// Told reports whether the end of a job has reached this hub by the stream: it
// was sent, or waits to be. running tells that the job's messages came and its
// end did not yet.
func (s *Streams) Told(k Key, job string) (told, running bool) {
	s.change(k, false, func(c *client) {
		q := c.line.of(job)
		told = c.fences[job] == finished || q != nil && q.over
		running = q != nil && !q.over
	})
	return told, running
}

// Tell adds the complete sequence of a job that another hub has run, as
// [Streams.Ended] does, unless its end has come from there. What comes later
// is dropped. No messages mean that nothing is known of it, and tell nothing.
func (s *Streams) Tell(k Key, promptID, job string, msgs ...Message) {
	if len(msgs) == 0 {
		return
	}
	s.change(k, true, func(c *client) {
		q := c.line.of(job)
		if c.fences[job] == finished || q != nil && (q.over || q.foreign == nil) {
			return
		}
		if q != nil {
			c.line.lose(q)
			q.foreign.outdated = true
		}
		c.noteFence(job, finished)
		c.line.ended(Attempt{Prompt: promptID, Job: job, Fence: finished}, msgs)
		c.seek()
	})
}
