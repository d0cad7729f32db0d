package dispatch

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Bounds of the pause between two attempts to open an instance's socket.
const (
	minRedial = 100 * time.Millisecond
	maxRedial = 3 * time.Second
)

// feed keeps one WebSocket to an instance open under one client id and hands
// on what arrives. There is never a second socket of the same id: ComfyUI
// would silence one of them when the other closes.
type feed struct {
	client *comfyui.Client
	sid    string
	// up is called after each successful opening, before any frame of it.
	up func(ctx context.Context)
	// down is called when the socket is lost and after each failed attempt to
	// open it.
	down func(err error)
	// frame is called for each message and must not block.
	frame func(comfyui.Frame)
}

// run keeps the socket open until ctx ends.
func (f *feed) run(ctx context.Context) {
	pause := minRedial
	for ctx.Err() == nil {
		socket, err := f.client.Dial(ctx, f.sid)
		if err == nil {
			pause = minRedial
			f.up(ctx)
			err = f.read(ctx, socket)
			socket.Close()
		}
		if ctx.Err() != nil {
			return
		}
		f.down(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(pause*2, maxRedial)
	}
}

func (f *feed) read(ctx context.Context, socket *comfyui.Socket) error {
	for {
		frame, err := socket.Next(ctx)
		if err != nil {
			return err
		}
		f.frame(frame)
	}
}
