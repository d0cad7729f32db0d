package view

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
	Readers  *logs.Readers
	Fleet    *fleet.Registry
	Logins   *tenants.Logins
	Insight  *Insight
	Dispatch *dispatch.Dispatcher
	Log      func() *slog.Logger
}

// Read lets a client of a viewer read the log on its socket from now on, or ends that. It does
// nothing for a viewer who does not see everything, since a log tells about everybody's prompts.
func (l *Logs) Read(ctx context.Context, v Viewer, client string, wanted bool) {
	if !l.Insight.SeesAll(v) {
		return
	}
	left := l.Readers.Set(stream.Key{Tenant: v.Tenant, Client: client}, wanted)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := l.Dispatch.Logs.Subscribe(ctx, left); err != nil {
		l.Log().Debug("cannot subscribe to an instance's log", "error", err)
	}
}

// Pass passes lines of an instance's log on to the clients that are reading them.
func (l *Logs) Pass(instance string, frame []byte) {
	if l.Logins.Lately() {
		return // they asked for it before anybody had logged in
	}
	l.Readers.Pass(instance, frame, l.Fleet.Len() > 1)
}
