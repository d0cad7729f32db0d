package hub

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/stream"
)

// ReadLogs lets a client of a viewer read the log of all instances on its socket
// from now on, or ends that. It does nothing for a viewer who does not see
// everything, since a log tells of everybody's prompts.
func (h *Hub) ReadLogs(ctx context.Context, v Viewer, client string, wanted bool) {
	if !h.insight.SeesAll(v) {
		return
	}
	left := h.logs.Set(stream.Key{Tenant: v.Tenant, Client: client}, wanted)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.dispatch.SubscribeLogs(ctx, left); err != nil {
		h.log().Debug("cannot subscribe to an instance's log", "error", err)
	}
}

// logged passes log lines of an instance on to the clients that read them.
func (h *Hub) logged(instance string, frame []byte) {
	if h.logins.lately() {
		return // they asked for it before anybody had logged in
	}
	h.logs.Pass(instance, frame, len(h.fleet.Instances()) > 1)
}
