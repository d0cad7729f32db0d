package dispatch

import (
	"bytes"
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// typeLogs is the message with which an instance tells subscribers its log.
const typeLogs = "logs"

// SubscribeLogs asks the primary for its log lines, which Config.Logged is told
// of, or ends that. After a restart of the instance it is asked again.
func (d *Dispatcher) SubscribeLogs(ctx context.Context, wanted bool) error {
	d.logsWanted.Store(wanted)
	links := d.open()
	if len(links) == 0 {
		return errors.New("dispatch: no instance is connected")
	}
	return links[0].client.SubscribeLogs(ctx, links[0].sid, wanted)
}

// resumeLogs subscribes anew after the primary's socket was opened.
func (d *Dispatcher) resumeLogs(ctx context.Context, l *link) {
	if !d.logsWanted.Load() {
		return
	}
	if links := d.open(); len(links) > 0 && links[0].name < l.name {
		return
	}
	if err := l.client.SubscribeLogs(ctx, l.sid, true); err != nil {
		l.log.Debug("cannot subscribe to the log", "error", err)
	}
}

// takeLog hands a message on if it is of the log. Such messages come at any
// time and belong to no run.
func (d *Dispatcher) takeLog(f comfyui.Frame) bool {
	if f.Binary || !bytes.Contains(f.Data[:min(len(f.Data), 40)], []byte(`"`+typeLogs+`"`)) {
		return false
	}
	m, ok := comfyui.ParseMessage(f.Data)
	if !ok || m.Type != typeLogs {
		return false
	}
	if d.Logged != nil {
		d.Logged(f.Data)
	}
	return true
}
