package comfyui

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

// WatchOptions tunes [Watch]. The zero value is right for production.
type WatchOptions struct {
	// Logger gets a line at each coming and going. Default: none.
	Logger *slog.Logger
	// MinBackoff and MaxBackoff bound the pauses between attempts to
	// connect. Default: 200 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// CheckEvery is how often the server is asked whether it still lives,
	// which nothing else would reveal for a machine that lost its power.
	// Default: 30 s.
	CheckEvery time.Duration
	// CallTimeout bounds each question. A server that loads a model answers
	// late. Default: 30 s.
	CallTimeout time.Duration
	// Patience is how long the server may give no sign of life over a socket that stands.
	// Default: 15 s.
	Patience time.Duration
	// ObjectInfoEvery is how often object_info is read again while the server
	// is idle, and a third as often while it never is: model files come without
	// any notice. Default: 10 min.
	ObjectInfoEvery time.Duration
	// Folders says that the server's model folders are on this machine, if it
	// is on the same disks, and must be looked at: when a file comes or goes
	// there, object_info is read at once, also beside a running prompt.
	Folders bool
	// FoldersEvery is the pause between two looks. Default: 3 s.
	FoldersEvery time.Duration
	// ObjectInfo gets each body that was read, with its hash. Optional.
	ObjectInfo func(hash string, body []byte)
}

func (o WatchOptions) withDefaults() WatchOptions {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.MinBackoff = cmp.Or(o.MinBackoff, 200*time.Millisecond)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 5*time.Second)
	o.CheckEvery = cmp.Or(o.CheckEvery, 30*time.Second)
	o.CallTimeout = cmp.Or(o.CallTimeout, 30*time.Second)
	o.Patience = cmp.Or(o.Patience, 15*time.Second)
	o.FoldersEvery = cmp.Or(o.FoldersEvery, 3*time.Second)
	o.ObjectInfoEvery = cmp.Or(o.ObjectInfoEvery, 10*time.Minute)
	return o
}

// Watch follows one server until ctx ends, through all its restarts. notify is
// called from one goroutine with each change, the first time once it is known
// whether the server is up; it must not block for long. Idleness is learned
// from the server's own status messages, not by asking for it.
func Watch(ctx context.Context, c *Client, o WatchOptions, notify func(Observation)) {
	w := &watcher{client: c, options: o.withDefaults(), notify: notify, replaced: true}
	if o.Folders {
		looks := newFolderWatch(c, w.options.FoldersEvery)
		w.folders = looks.changed
		var looking sync.WaitGroup
		defer looking.Wait()
		looking.Go(func() { looks.run(ctx) })
	}
	pauses := retry.New(w.options.MinBackoff, w.options.MaxBackoff)
	for ctx.Err() == nil {
		began := time.Now()
		lived, err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if !lived && !isTimeout(err) {
			// Somebody refused the connection or cut it, as whatever stands
			// before a dead process does. A live one may be late, no more.
			w.replaced = true
		}
		if !lived || !errors.Is(err, errSocketLost) {
			w.down(err)
		}
		if lived && time.Since(began) > w.options.MaxBackoff {
			// Ask again at once: the server may be alive all the same, and
			// only a refused connection tells a restart from a lost socket.
			pauses.Reset()
			continue
		}
		pauses.Wait(ctx)
		if lived {
			pauses.Reset()
		}
	}
}

// watcher belongs to the goroutine of Watch; what others learn comes to it
// through the channels of a session.
type watcher struct {
	client  *Client
	options WatchOptions
	notify  func(Observation)

	now      Observation
	notified bool
	// replaced says that the server was away since it was last up, so that the
	// next one at its address is another process.
	replaced bool
	// infoBegan is when the last reading of object_info began, infoRead when
	// it was there.
	infoBegan, infoRead time.Time
	// folders reports changes in the model folders, foldersChanged is when
	// that was last.
	folders        <-chan struct{}
	foldersChanged time.Time
}

// emit passes on a change.
func (w *watcher) emit(next Observation) {
	if next.Up != w.now.Up || next.Idle() != w.now.Idle() || w.now.Since.IsZero() {
		next.Since = time.Now()
	}
	if w.notified && next == w.now {
		return
	}
	w.now, w.notified = next, true
	w.notify(next)
}

func (w *watcher) down(err error) {
	next := w.now
	next.Up, next.Reason = false, plainReason(err)
	next.QueueRemaining, next.Foreign, next.Running, next.RunningMark = 0, 0, "", Mark{}
	if w.now.Up || !w.notified || w.now.Reason != next.Reason {
		w.options.Logger.Warn("ComfyUI is not reachable", "url", w.client.URL(), "reason", next.Reason)
	}
	w.emit(next)
}
