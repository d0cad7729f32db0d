package dispatch

import (
	"bytes"
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/rescue"
)

// typeLogs is the message with which an instance tells subscribers its log.
const typeLogs = "logs"

// SubscribeLogs asks all instances for their log lines, which Config.Logged is
// told of, or ends that. An instance that connects later, or again, is asked
// then. The error joins those of the instances that could not be asked.
func (d *Dispatcher) SubscribeLogs(ctx context.Context, wanted bool) error {
	d.logsWanted.Store(wanted)
	links := d.open()
	errs := make([]error, len(links))
	var wait rescue.Group
	for n, l := range links {
		wait.Go(l.log, "subscribing to a log", func() { errs[n] = l.client.SubscribeLogs(ctx, l.sid, wanted) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// resumeLogs subscribes anew after an instance's socket was opened.
func (d *Dispatcher) resumeLogs(ctx context.Context, l *link) {
	if !d.logsWanted.Load() {
		return
	}
	if err := l.client.SubscribeLogs(ctx, l.sid, true); err != nil {
		l.log.Debug("cannot subscribe to the log", "error", err)
	}
}

// takeLog hands a message on if it is of the log. Such messages come at any
// time and belong to no run.
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
