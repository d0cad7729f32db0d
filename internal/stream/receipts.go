package stream

import "slices"

// receipts takes what shows that a client has read the ends of prompts: it is told each of them once,
// and so is whoever waits for that.
type receipts struct {
	clients *registry
	network *network
	// delivered is [Options.Delivered].
	delivered func(k Key, promptID string)
}

// receive handles receipts, whatever their form. what names them for the log.
func (r *receipts) receive(k Key, what string, which func(*client) []*sequence) {
	var prompts, jobs []string
	var owner int64
	remote := map[string][]uint64{}
	r.clients.change(k, false, func(c *client) {
		c.noteWritten()
		owner = c.owner.Number
		received := which(c)
		for _, q := range received {
			prompts, jobs = append(prompts, q.prompt), append(jobs, q.job)
			c.fences.received(q.job)
			runs := c.remotes.replaced(q.job)
			if q.remote != nil {
				runs = append(runs, q.remote)
			}
			for _, run := range runs {
				run.received = true
				remote[run.hub] = append(remote[run.hub], run.id)
			}
		}
		if len(received) > 0 && c.forwarder != nil {
			// The client has moved to another hub, which must not send it again.
			c.forwarder.push(item{control: controlSynced, floor: c.line.lists.floor(), jobs: slices.Clone(c.fences.recent)})
		}
	})
	if len(jobs) > 0 {
		r.clients.log.Debug("client has received ends", "jobs", jobs, "receipt", what)
	}
	r.network.receipts(k, owner, remote)
	for _, prompt := range prompts {
		r.delivered(k, prompt)
	}
}

// left handles a client closing its socket w, possibly in answer to this hub's close frame.
func (r *receipts) left(k Key, w *socket, inOrder, answers bool) {
	r.receive(k, "close frame", func(c *client) []*sequence {
		written, told, since := w.marks()
		switch {
		case inOrder && answers: // the close frame may have come before the last messages of an end
			return c.line.closedInOrder(written)
		case inOrder:
			return c.line.closedInOrder(told)
		case c.socket == w && since < promptly: // otherwise it may have been held up until now
			c.line.lists.closed(told)
		}
		return nil
	})
}

// received handles a receipt for everything that a socket has written up to mark, and a sign that
// the client has read up to probe. An older socket's receipt counts only until the newest socket is
// sent the same again, with new marks.
func (r *receipts) received(k Key, mark, probe uint64) {
	if probe > 0 {
		r.clients.pongs.Change(k.Tenant, k.Client, func(*struct{}) {})
	}
	if mark > 0 || probe > 0 {
		r.receive(k, "pong", func(c *client) []*sequence {
			c.line.reads(probe)
			return c.line.confirm(mark)
		})
	}
}

func (r *receipts) fetched(k Key, prompts []string) {
	r.receive(k, "fetched results", func(c *client) []*sequence {
		return c.line.take(func(q *sequence) bool { return q.told && slices.Contains(prompts, q.prompt) })
	})
}
