package instance

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
)

// Logs are the logs of the connected instances.
type Logs struct {
	links *Links
	// logged is told the messages.
	logged func(instance string, frame []byte)
	// wanted says that somebody is reading them.
	wanted atomic.Bool
}

// typeLogs is the message in which an instance sends its log to subscribers.
const typeLogs = "logs"

// Subscribe asks all instances for their log lines, which go to Config.Logged, or cancels that.
// An instance that connects later, or again, is asked then. The error joins those of the instances
// that could not be asked.
func (l *Logs) Subscribe(ctx context.Context, wanted bool) error {
	l.wanted.Store(wanted)
	conns := l.links.Open()
	errs := make([]error, len(conns))
	var wait panics.Group
	for n, conn := range conns {
		wait.Go(conn.Log, "subscribing to a log", func() { errs[n] = conn.Client.SubscribeLogs(ctx, conn.ClientID(), wanted) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// resume subscribes again after an instance's socket has opened.
func (l *Logs) resume(ctx context.Context, conn *Link) {
	if !l.wanted.Load() {
		return
	}
	if err := conn.Client.SubscribeLogs(ctx, conn.ClientID(), true); err != nil {
		conn.Log.Debug("cannot subscribe to the log", "error", err)
	}
}

// take hands a message on if it is from the log. Such messages come at any time and belong to no
// run.
func (l *Logs) take(instance string, f comfyui.Frame) bool {
	if f.Binary || !bytes.Contains(f.Data[:min(len(f.Data), 40)], []byte(`"`+typeLogs+`"`)) {
		return false
	}
	m, ok := comfyui.ParseMessage(f.Data)
	if !ok || m.Type != typeLogs {
		return false
	}
	if l.logged != nil {
		l.logged(instance, f.Data)
	}
	return true
}
