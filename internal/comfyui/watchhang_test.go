package comfyui

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// A server that hangs while it is idle is not up until it answers again, and it is the same
// process then. One that hangs while it works is only late.
func TestWatchNoticesAHang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		running []string
		down    bool
	}{
		"idle":    {nil, true},
		"at work": {[]string{ours("a")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loopback.Test(t, func(t *testing.T) {
				answers := make(chan struct{}) // closed when it answers
				f := &fakeServer{sockets: map[*websocket.Conn]string{}, running: c.running}
				f.handle = func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != "/ws" {
						return false
					}
					conn, err := websocket.Accept(w, r, nil)
					if err == nil {
						err = conn.Write(r.Context(), websocket.MessageText, statusMessage(len(c.running), "sid"))
					}
					<-answers
					for err == nil {
						_, _, err = conn.Read(r.Context())
					}
					return true
				}
				server := loopback.Serve(f)
				defer server.Close()
				client, err := NewClient(server.URL, Options{Dial: loopback.Dial})
				require.NoError(t, err)
				defer client.Close()
				w, done := &witness{}, make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					defer close(done)
					Watch(ctx, client, WatchOptions{}, w.notify)
				}()
				<-time.After(QuietAfter + lateAfter - time.Millisecond)
				require.True(t, w.last().Up)
				boot := w.last().Boot
				<-time.After(2 * time.Millisecond)
				require.Equal(t, !c.down, w.last().Up)
				if c.down {
					require.Equal(t, "no answer in time", w.last().Reason)
				}
				<-time.After(5 * time.Second)
				close(answers)
				<-time.After(time.Millisecond)
				require.True(t, w.last().Up)
				require.Empty(t, w.last().Reason)
				require.Equal(t, boot, w.last().Boot)
				stop()
				<-done
			})
		})
	}
}
