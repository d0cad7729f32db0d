package instance

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// If a reader of an instance's messages panics, it loses its socket and opens a new one.
func TestPanicOfASocketsReader(t *testing.T) {
	t.Parallel()
	server := sure(sim.New(sim.Config{}))
	web := loopback.Serve(server.Handler())
	t.Cleanup(func() {
		server.Kill()
		web.CloseClientConnections()
		web.Close()
		server.Close()
	})
	client := sure(comfyui.NewClient(web.URL, comfyui.Options{Dial: loopback.Dial}))
	type row struct {
		up    int // which opening panics
		frame bool
		lost  bool // whether the socket is lost
	}
	for name, tt := range map[string]row{
		"at a frame": {frame: true, lost: true},
		"at opening": {up: 1},
	} {
		ctx, stop := context.WithTimeout(t.Context(), deadlineOfLinks)
		ups := 0
		var lost error
		f := &eventSocket{
			alive: func() {}, patience: func() time.Duration { return time.Minute },
			client: client, sid: uuid.NewString, log: slog.New(slog.DiscardHandler),
			up: func(context.Context) error {
				ups++
				switch ups {
				case tt.up:
					panic("broken")
				case 2:
					stop()
				}
				return nil
			},
			down: func(err error) { lost = err },
			frame: func(comfyui.Frame) {
				if tt.frame {
					panic("broken")
				}
			},
		}
		f.run(ctx)
		stop()
		require.Equal(t, 2, ups, "it is opened again: %s", name)
		require.Equal(t, tt.lost, errors.Is(lost, panics.ErrPanic), name)
	}
}
