package dispatch

import "time"

// lastSeen is when the instance last gave a sign of life.
func (conn *connection) lastSeen() time.Time {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.seen
}

// heardSince reports whether a message has come from the instance since a moment.
func (conn *connection) heardSince(t time.Time) bool {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.said.After(t)
}

// reopen opens the socket again. The instance gets nothing before that.
func (conn *connection) reopen() {
	conn.setDown()
	conn.socket.reopen()
}

// alive notes a sign of life that is no message.
func (conn *connection) alive() {
	conn.mu.Lock()
	conn.seen = time.Now()
	conn.mu.Unlock()
}

// touch notes a message.
func (conn *connection) touch() {
	conn.mu.Lock()
	conn.seen, conn.said = time.Now(), time.Now()
	conn.mu.Unlock()
}
