package agent

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

// BenchmarkIdleEdge measures how long a hub thinks an instance busy that has
// sent the end of its run: the gap in which a waiting job is not yet given to
// it. The result is in idle-us/op; ns/op is a whole run.
func BenchmarkIdleEdge(b *testing.B) {
	h := startHub(b, "127.0.0.1:0")
	defer h.stop(b)
	_, url := startSim(b)
	startAgent(b, config{name: "box", join: []string{h.Local().Addr}, targets: []target{{name: "box", url: url}}})
	client := newClient(b, h.await(b, "idle", "box", ready))
	socket, err := client.Dial(b.Context(), "sid")
	require.NoError(b, err)
	defer socket.Close()
	changes := h.registry.Subscribe()
	defer changes.Close()
	var gap time.Duration
	for n := 0; b.Loop(); n++ {
		_, err := client.Submit(b.Context(), work(fmt.Sprintf("%08d-1111-4111-8111-111111111111", n), mark, 0.02))
		require.NoError(b, err)
		for ended := false; !ended; {
			frame, err := socket.Next(b.Context())
			require.NoError(b, err)
			m, ok := comfyui.ParseMessage(frame.Data)
			ended = ok && m.Ends()
		}
		end := time.Now()
		for {
			if i, _ := h.registry.Instance("box"); i.State == fleet.Idle {
				break
			}
			<-changes.Ready()
		}
		gap += time.Since(end)
	}
	b.ReportMetric(float64(gap.Microseconds())/float64(b.N), "idle-us/op")
}

// BenchmarkThroughAgent compares a small question to an instance itself with
// one through its agent, plain and with TLS.
func BenchmarkThroughAgent(b *testing.B) {
	_, url := startSim(b)
	ask := func(b *testing.B, address string, o comfyui.Options) {
		b.Helper()
		c, err := comfyui.NewClient(address, o)
		require.NoError(b, err)
		defer c.Close()
		for b.Loop() {
			_, err := c.QueueRemaining(b.Context())
			require.NoError(b, err)
		}
	}
	serve := func(b *testing.B, c config) string {
		b.Helper()
		c.logger = discard()
		a := &agent{config: c, log: c.logger}
		listener, err := a.listen()
		require.NoError(b, err)
		require.NoError(b, a.add(target{name: "box", url: url}))
		server := a.server(b.Context())
		done := make(chan error, 1)
		go func() { done <- server.Serve(listener) }()
		b.Cleanup(func() { server.Close(); <-done; a.find("box").client.Close() })
		return fmt.Sprintf("%s://127.0.0.1:%d/i/box", a.scheme, listener.Addr().(*net.TCPAddr).Port)
	}
	b.Run("direct", func(b *testing.B) { ask(b, url, comfyui.Options{}) })
	b.Run("agent", func(b *testing.B) {
		ask(b, serve(b, config{serve: "127.0.0.1:0"}), comfyui.Options{ViaAgent: true})
	})
	b.Run("agent with TLS", func(b *testing.B) {
		id := gossip.NewIdentity()
		tls, err := newHubs(b, "k").DialTLS(id.Key())
		require.NoError(b, err)
		ask(b, serve(b, config{serve: "0.0.0.0:0", key: "k", identity: id, join: []string{"hub.example.com"}}), comfyui.Options{ViaAgent: true, TLS: tls})
	})
}
