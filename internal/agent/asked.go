package agent

import (
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// asked is a restart of a server that somebody has asked for. The agent's mutex guards
// it.
type asked struct {
	// at is when; zero if none is due.
	at time.Time
	// boot is the process that it was asked of, restarted the one that came of it.
	boot, restarted int64
}

// due reports whether a restart was asked for and has not happened yet.
func (r asked) due() bool { return !r.at.IsZero() && time.Since(r.at) < restartTimeout }

// take notes which process was observed.
func (r *asked) take(o comfyui.Observation) {
	if r.due() && o.Up && o.Boot != r.boot {
		*r = asked{restarted: o.Boot}
	}
}

// passed is the answer to a request that a server was passed.
type passed struct {
	http.ResponseWriter
	// deliberate says whether it is no accident that the server is not there.
	deliberate func() bool
	status     int
}

// WriteHeader tells hubs whether a server that is gone was meant to go.
func (p *passed) WriteHeader(status int) {
	p.status = status
	if h := p.Header(); h.Get(comfyui.UnreachableHeader) == comfyui.Gone && p.deliberate() {
		h.Set(comfyui.UnreachableHeader, comfyui.Restarting)
	}
	p.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the proxy upgrade and flush the connection.
func (p *passed) Unwrap() http.ResponseWriter { return p.ResponseWriter }
