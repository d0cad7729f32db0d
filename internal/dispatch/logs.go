package dispatch

import (
	"bytes"
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
)

// typeLogs is the message in which an instance sends its log to subscribers.
const typeLogs = "logs"

// SubscribeLogs asks all instances for their log lines, which go to Config.Logged, or cancels that.
// An instance that connects later, or again, is asked then. The error joins those of the instances
// that could not be asked.
func (d *Dispatcher) SubscribeLogs(ctx context.Context, wanted bool) error {
	d.logsWanted.Store(wanted)
	conns := d.connected()
	errs := make([]error, len(conns))
	var wait panics.Group
	for n, conn := range conns {
		wait.Go(conn.log, "subscribing to a log", func() { errs[n] = conn.client.SubscribeLogs(ctx, conn.clientID(), wanted) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// resumeLogs subscribes again after an instance's socket has opened.
func (d *Dispatcher) resumeLogs(ctx context.Context, conn *connection) {
	if !d.logsWanted.Load() {
		return
	}
	if err := conn.client.SubscribeLogs(ctx, conn.clientID(), true); err != nil {
		conn.log.Debug("cannot subscribe to the log", "error", err)
	}
}

// takeLog hands a message on if it is from the log. Such messages come at any time and belong to no
// run.
func (d *Dispatcher) takeLog(instance string, f comfyui.Frame) bool {
	if f.Binary || !bytes.Contains(f.Data[:min(len(f.Data), 40)], []byte(`"`+typeLogs+`"`)) {
		return false
	}
	m, ok := comfyui.ParseMessage(f.Data)
	if !ok || m.Type != typeLogs {
		return false
	}
	if d.Logged != nil {
		d.Logged(instance, f.Data)
	}
	return true
}
