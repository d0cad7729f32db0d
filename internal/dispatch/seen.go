package dispatch

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// provenFor is how long a sign of life counts: an instance that has shown none since may be
// hanging, and gets no job until the next one. It is asked for one half a second before that, see
// [comfyui.Socket.KeepAlive].
const provenFor = comfyui.QuietAfter + 500*time.Millisecond

// proven reports whether the instance has recently shown a sign of life. The caller holds the lock.
func (conn *connection) proven() bool { return time.Since(conn.seen) <= provenFor }

// see notes a sign of life. The caller holds the lock.
func (conn *connection) see() {
	if !conn.proven() && conn.wake != nil {
		conn.wake()
	}
	conn.seen = time.Now()
	if conn.silent {
		conn.silent = false
		conn.fleet.SetSilent(conn.name, false)
	}
}

// late tells the fleet that the instance has shown no sign of life although it was asked.
func (conn *connection) late() {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if !conn.proven() && !conn.silent {
		conn.silent = true
		conn.fleet.SetSilent(conn.name, true)
	}
}

// lastSeen is when the instance last gave a sign of life.
func (conn *connection) lastSeen() time.Time {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.seen
}

// heardSince reports whether a message has come from the instance since t.
func (conn *connection) heardSince(t time.Time) bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.said.After(t)
}

// reopen opens the socket again. The instance gets nothing until then.
func (conn *connection) reopen() {
	conn.setDown()
	conn.socket.reopen()
}

// alive notes a sign of life that is not a message.
func (conn *connection) alive() {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.see()
}

// touch notes a message.
func (conn *connection) touch() {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	conn.see()
	conn.said = conn.seen
}
