package instance

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Bounds of the pause between attempts to open an instance's socket.
const (
	minRedial = 100 * time.Millisecond
	maxRedial = 3 * time.Second
)

// eventSocket keeps one WebSocket to an instance open under one client id and passes on what
// arrives. There is never a second socket with the same id: ComfyUI would silence one of them when
// the other closes.
type eventSocket struct {
	client *comfyui.Client
	log    *slog.Logger
	// sid returns the client id for the next attempt to open the socket.
	sid func() string
	// up is called each time the socket opens, before its first frame, and again as long as it
	// fails and the socket stays open.
	up func(ctx context.Context) error
	// then, which may be nil, is called after up in the same way, but without holding up the
	// reading: it may take minutes, and the instance blocks on clients that do not read.
	then func(ctx context.Context) error
	// down is called when the socket is lost or frame panics, and after each failed attempt to open
	// the socket.
	down func(err error)
	// frame is called for each message and must not block.
	frame func(comfyui.Frame)
	// alive is called at each sign of life that is not a message, and late when there has been none
	// for some seconds. patience is how long the instance may show none.
	alive, late func()
	patience    func() time.Duration

	socket atomic.Pointer[comfyui.Socket] // the open one
}

// CaughtUp waits until everything that the instance had sent before the call has been read.
func (f *eventSocket) CaughtUp(ctx context.Context) error {
	socket := f.socket.Load()
	if socket == nil {
		return errNotOpen
	}
	return socket.Ping(ctx)
}

// reopen closes the socket so that it is opened again.
func (f *eventSocket) reopen() {
	if socket := f.socket.Load(); socket != nil {
		socket.Close()
	}
}

// errNotOpen says that an instance's socket is not open.
var errNotOpen = errors.New("instance: the socket is not open")

// run keeps the socket open until ctx ends.
func (f *eventSocket) run(ctx context.Context) {
	pauses := retry.New(minRedial, maxRedial)
	for ctx.Err() == nil {
		socket, err := f.client.Dial(ctx, f.sid())
		if err == nil {
			pauses.Reset()
			err = panics.Do(f.log, "reading an instance's messages", func() error { return f.serve(ctx, socket) })
			socket.Close()
		}
		if ctx.Err() != nil {
			return
		}
		f.down(err)
		pauses.Wait(ctx)
	}
}

// serve reads what comes over an open socket until it is lost. The socket counts as open once the
// instance has said something, which it does at once: before that, it may send messages about a
// prompt to nobody.
func (f *eventSocket) serve(ctx context.Context, socket *comfyui.Socket) error {
	greeting, err := f.greeting(ctx, socket)
	if err != nil {
		return err
	}
	f.socket.Store(socket)
	defer f.socket.Store(nil)
	standing, lost := context.WithCancel(ctx)
	var again panics.Group
	defer again.Wait()
	defer lost()
	again.Go(f.log, "listening for signs of life", func() { socket.KeepAlive(standing, f.patience(), f.alive, f.late) })
	err = f.do(standing, f.up)
	again.Go(f.log, "opening a socket", func() {
		if (err == nil || f.again(standing, f.up)) && f.then != nil && f.do(standing, f.then) != nil {
			f.again(standing, f.then)
		}
	})
	f.frame(greeting)
	return f.read(ctx, socket)
}

func (f *eventSocket) greeting(ctx context.Context, socket *comfyui.Socket) (comfyui.Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	return socket.Next(ctx)
}

// again repeats a step of opening the socket until it succeeds. It reports whether it did so before
// ctx ended.
func (f *eventSocket) again(ctx context.Context, step func(context.Context) error) bool {
	for pauses := retry.New(minRedial, maxRedial); pauses.Wait(ctx); {
		if f.do(ctx, step) == nil {
			return true
		}
	}
	return false
}

func (f *eventSocket) do(ctx context.Context, step func(context.Context) error) error {
	return panics.Do(f.log, "opening a socket", func() error { return step(ctx) })
}

func (f *eventSocket) read(ctx context.Context, socket *comfyui.Socket) error {
	for {
		frame, err := socket.Next(ctx)
		if err != nil {
			return err
		}
		f.frame(frame)
	}
}
