package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// formerSocket is a socket under the client id of another hub, or of an earlier connection, that
// posted runs which this hub has taken over. Two runs may have the same id: the one that is
// executing and the one waiting behind it. They share the socket, because ComfyUI silences one of
// two sockets with the same id when the other closes. The connection's lock guards it.
type formerSocket struct {
	runs map[*run]struct{}
	open bool
	stop context.CancelFunc
	done chan struct{} // closed when the socket is
}

// share lets a run hear what the instance sends to a client id, until leave is called.
func (conn *connection) share(d *runner, r *run, sid string) (leave func()) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	f := conn.former[sid]
	if f == nil || len(f.runs) == 0 { // there is none, or it is closing
		f = conn.openFormer(d, sid, f)
	}
	f.runs[r] = struct{}{}
	if f.open {
		r.mail.put(runEvent{kind: socketUp})
	}
	return func() {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if delete(f.runs, r); len(f.runs) == 0 {
			f.stop()
		}
	}
}

// openFormer opens a socket once the one before it, if any, is closed. The caller holds the lock.
func (conn *connection) openFormer(d *runner, sid string, before *formerSocket) *formerSocket {
	ctx, stop := context.WithCancel(d.ctx)
	f := &formerSocket{runs: map[*run]struct{}{}, stop: stop, done: make(chan struct{})}
	if conn.former == nil {
		conn.former = map[string]*formerSocket{}
	}
	conn.former[sid] = f
	tell := func(e runEvent) {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if e.kind != frameArrived {
			f.open = e.kind == socketUp
		}
		for r := range f.runs {
			r.mail.put(e)
		}
	}
	socket := &eventSocket{
		client: conn.client, sid: func() string { return sid }, log: conn.log,
		up:    func(context.Context) error { tell(runEvent{kind: socketUp}); return nil },
		down:  func(err error) { tell(runEvent{kind: socketDown, err: err}) },
		frame: func(fr comfyui.Frame) { conn.alive(); tell(runEvent{kind: frameArrived, frame: fr}) },
		alive: conn.alive, late: conn.late, patience: func() time.Duration { return d.settings().ContactTimeout },
	}
	d.work.Go(conn.log, "reading the messages of runs", func() {
		defer func() {
			close(f.done)
			conn.mu.Lock()
			defer conn.mu.Unlock()
			if conn.former[sid] == f {
				delete(conn.former, sid)
			}
		}()
		if before != nil {
			<-before.done
		}
		socket.run(ctx)
	})
	return f
}
