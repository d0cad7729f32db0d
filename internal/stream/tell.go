package stream

import "time"

// This file handles ends that another hub should have sent but may have been unable
// to: they are rebuilt from the history and told once.

// Holds reports whether this hub holds the client's stream: the client has a socket
// here, or had one so recently that it is expected back.
func (s *Streams) Holds(k Key) (holds bool) {
	s.clients.change(k, false, func(c *client) { holds = c.socket != nil || c.ownedHere() })
	return holds
}

// Present is a client that has a socket here.
type Present struct {
	Key
	// Since is when the socket was opened.
	Since time.Time
}

// Present returns the clients that have a socket here.
func (s *Streams) Present() []Present {
	var present []Present
	for _, c := range s.clients.all() {
		c.change(func(c *client) {
			if c.socket != nil {
				present = append(present, Present{c.key, c.socket.opened})
			}
		})
	}
	return present
}

// Told reports whether the end of a job has reached this hub's stream: it was sent
// or is waiting to be. running means that messages of the job have arrived, but not
// its end.
func (s *Streams) Told(k Key, job string) (told, running bool) {
	s.clients.change(k, false, func(c *client) {
		q := c.line.lists.of(job)
		told = c.fences.hasEnd(job) || q != nil && q.over
		running = q != nil && !q.over
	})
	return told, running
}

// EndedElsewhere adds, as [Streams.Ended] does, the complete sequence of a job that another hub has
// run, or that this hub has run and has nothing left of, unless its end has arrived. Anything that
// arrives later is dropped. Without messages nothing is known about the job, and nothing happens.
func (s *Streams) EndedElsewhere(k Key, promptID, job string, msgs ...Message) {
	if len(msgs) == 0 {
		return
	}
	s.clients.change(k, true, func(c *client) {
		q := c.line.lists.of(job)
		if c.fences.hasEnd(job) || q != nil && (q.over || q.remote == nil) {
			return
		}
		if q != nil {
			c.line.lose(q)
			q.remote.outdated = true
		}
		c.fences.note(job, finished)
		c.line.ended(Attempt{Prompt: promptID, Job: job, Fence: finished}, msgs)
		c.findOwner()
	})
}
