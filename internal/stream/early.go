package stream

// maxEarly and maxEarlyBytes bound what is kept for a socket that is being opened.
const (
	maxEarly      = 64
	maxEarlyBytes = 1 << 20
)

// early holds messages that belong to no run, oldest first, while a socket of the client is being
// opened: since the upgrade the client believes that it hears everything, but the socket is still
// waiting for other hubs to let go of the client.
type early struct {
	frames []*frame
	size   int64
}

// keep takes a message; one that does not fit is dropped.
func (e *early) keep(f *frame) {
	if len(e.frames) < maxEarly && e.size+f.size <= maxEarlyBytes {
		e.frames = append(e.frames, f)
		e.size += f.size
	}
}

// opened notes that one of the client's sockets is no longer being opened: it is the
// client's socket now, or has failed.
func (c *client) opened() {
	c.opening = max(c.opening-1, 0) // the client may have been forgotten meanwhile
	if c.opening > 0 {
		return
	}
	if c.socket != nil {
		for _, f := range c.early.frames {
			c.socket.push(item{frame: f})
		}
	}
	c.early = early{}
}
