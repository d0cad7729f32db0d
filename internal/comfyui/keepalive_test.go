package comfyui

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// A socket stands as long as its server gives signs of life: messages, a long one that comes
// slowly, or only what it answers to pings.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	const patience = 15 * time.Second
	for name, c := range map[string]struct {
		serve func(ctx context.Context, conn *websocket.Conn)
		// late says that it gives no sign of life for some seconds, silent that it gives none.
		late, silent bool
	}{
		"it answers pings": {func(ctx context.Context, conn *websocket.Conn) {
			for err := error(nil); err == nil; {
				_, _, err = conn.Read(ctx)
			}
		}, false, false},
		"it sends a long message slowly": {func(ctx context.Context, conn *websocket.Conn) {
			w, err := conn.Writer(ctx, websocket.MessageText)
			for range 20 {
				if err == nil {
					_, err = w.Write(make([]byte, 16<<10)) // more than is kept until it is sent
				}
				select {
				case <-time.After(10 * time.Second):
				case <-ctx.Done():
				}
			}
		}, true, false},
		"it reads nothing": {func(ctx context.Context, _ *websocket.Conn) { <-ctx.Done() }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loopback.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				server := loopback.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					conn, err := websocket.Accept(w, r, nil)
					if err == nil {
						c.serve(ctx, conn)
						_ = conn.CloseNow()
					}
				}))
				defer server.Close()
				defer stop()
				client, err := NewClient(server.URL, Options{Dial: loopback.Dial})
				require.NoError(t, err)
				defer client.Close()
				socket, err := client.Dial(ctx, "sid")
				require.NoError(t, err)
				defer socket.Close()
				began := time.Now()
				var late atomic.Int64
				go socket.KeepAlive(ctx, patience, func() {}, func() { late.CompareAndSwap(0, int64(time.Since(began))) })
				reading, end := context.WithTimeout(ctx, 2*time.Minute)
				defer end()
				_, err = socket.Next(reading)
				if c.silent {
					require.ErrorIs(t, err, ErrSilent)
					require.Equal(t, QuietAfter+patience, time.Since(began))
				} else {
					require.NotErrorIs(t, err, ErrSilent)
					require.GreaterOrEqual(t, time.Since(began), 2*time.Minute)
				}
				if c.late {
					require.Equal(t, QuietAfter+lateAfter, time.Duration(late.Load()))
				} else {
					require.Zero(t, late.Load())
				}
			})
		})
	}
}
