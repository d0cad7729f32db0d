package instance

import (
	"context"
	"log/slog"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
)

// formerSockets are the sockets of runs that were taken over, by client id.
type formerSockets struct {
	// open makes the socket of a client id.
	open func(sid string) *eventSocket
	ctx  context.Context
	work *panics.Group
	log  *slog.Logger

	mu  sync.Mutex
	all map[string]*formerSocket
}

func newFormerSockets(ctx context.Context, work *panics.Group, log *slog.Logger, open func(sid string) *eventSocket) *formerSockets {
	return &formerSockets{ctx: ctx, work: work, log: log, open: open}
}

// formerSocket is a socket under the client id of another hub, or of an earlier link, that
// posted runs which this hub has taken over. Two runs may have the same id: the one that is
// executing and the one waiting behind it. They share the socket, because ComfyUI silences one of
// two sockets with the same id when the other closes. The lock of formerSockets guards it.
type formerSocket struct {
	runs map[Holder]struct{}
	up   bool
	stop context.CancelFunc
	done chan struct{} // closed when the socket is
}

// Share lets a run hear what the instance sends to a client id, until leave is called.
func (fs *formerSockets) Share(r Holder, sid string) (leave func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.all[sid]
	if f == nil || len(f.runs) == 0 { // there is none, or it is closing
		f = fs.begin(sid, f)
	}
	f.runs[r] = struct{}{}
	if f.up {
		r.Tell(Event{Kind: Up})
	}
	return func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if delete(f.runs, r); len(f.runs) == 0 {
			f.stop()
		}
	}
}

// begin opens a socket once the one before it, if any, is closed. The caller holds the lock.
func (fs *formerSockets) begin(sid string, before *formerSocket) *formerSocket {
	ctx, stop := context.WithCancel(fs.ctx)
	f := &formerSocket{runs: map[Holder]struct{}{}, stop: stop, done: make(chan struct{})}
	if fs.all == nil {
		fs.all = map[string]*formerSocket{}
	}
	fs.all[sid] = f
	tell := func(e Event) {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if e.Kind != Heard {
			f.up = e.Kind == Up
		}
		for r := range f.runs {
			r.Tell(e)
		}
	}
	socket := fs.open(sid)
	socket.up = func(context.Context) error { tell(Event{Kind: Up}); return nil }
	socket.down = func(err error) { tell(Event{Kind: Down, Err: err}) }
	socket.frame = func(frame comfyui.Frame) { socket.alive(); tell(Event{Kind: Heard, Frame: frame}) }
	fs.work.Go(fs.log, "reading the messages of runs", func() {
		defer func() {
			close(f.done)
			fs.mu.Lock()
			defer fs.mu.Unlock()
			if fs.all[sid] == f {
				delete(fs.all, sid)
			}
		}()
		if before != nil {
			<-before.done
		}
		socket.run(ctx)
	})
	return f
}
