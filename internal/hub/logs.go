package hub

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/logs"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/tenants"
)

// Logs presents the logs of all instances as one.
type Logs struct {
	readers  *logs.Readers
	fleet    *fleet.Registry
	logins   *tenants.Logins
	insight  *Insight
	dispatch *dispatch.Dispatcher
	log      func() *slog.Logger
}

// Read lets a client of a viewer read the log on its socket from now on, or ends that. It does
// nothing for a viewer who does not see everything, since a log tells about everybody's prompts.
func (l *Logs) Read(ctx context.Context, v Viewer, client string, wanted bool) {
	if !l.insight.SeesAll(v) {
		return
	}
	left := l.readers.Set(stream.Key{Tenant: v.Tenant, Client: client}, wanted)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := l.dispatch.Logs.Subscribe(ctx, left); err != nil {
		l.log().Debug("cannot subscribe to an instance's log", "error", err)
	}
}

// pass passes lines of an instance's log on to the clients that are reading them.
func (l *Logs) pass(instance string, frame []byte) {
	if l.logins.Lately() {
		return // they asked for it before anybody had logged in
	}
	l.readers.Pass(instance, frame, l.fleet.Len() > 1)
}
