package instance

import (
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// provenFor is how long a sign of life counts: an instance that has shown none since may be
// hanging, and gets no job until the next one. It is asked for one half a second before that, see
// [comfyui.Socket.KeepAlive].
const provenFor = comfyui.QuietAfter + 500*time.Millisecond

// pulse knows when an instance last showed a sign of life, and tells the fleet when it shows none.
type pulse struct {
	name  string
	fleet *fleet.Registry
	// wake is called when the instance may take a job that it was not given before because it
	// showed no sign of life.
	wake func()

	mu sync.Mutex
	// seen is when the instance last showed a sign of life; said is when a message last came, or
	// when it was last reached. silent says that the fleet was told of its silence.
	seen, said time.Time
	silent     bool
}

// proven reports whether the instance has recently shown a sign of life.
func (p *pulse) proven() bool { return time.Since(p.LastSeen()) <= provenFor }

// see notes a sign of life. The caller holds the lock.
func (p *pulse) see() {
	if time.Since(p.seen) > provenFor {
		p.wake()
	}
	p.seen = time.Now()
	if p.silent {
		p.silent = false
		p.fleet.SetSilent(p.name, false)
	}
}

// answers notes that the instance answers on a new socket.
func (p *pulse) answers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true // the previous link may have told the fleet so
	p.see()
	p.said = p.seen
}

// late tells the fleet that the instance has shown no sign of life although it was asked.
func (p *pulse) late() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.seen) > provenFor && !p.silent {
		p.silent = true
		p.fleet.SetSilent(p.name, true)
	}
}

// LastSeen is when the instance last gave a sign of life.
func (p *pulse) LastSeen() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// HeardSince reports whether a message has come from the instance since t.
func (p *pulse) HeardSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.After(t)
}

// alive notes a sign of life that is not a message.
func (p *pulse) alive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see()
}

// touch notes a message.
func (p *pulse) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see()
	p.said = p.seen
}
