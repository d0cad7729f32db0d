package hub

import (
	"context"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// A socket to a custom node, whose connections are no longer the server's, ends when its
// caller's key does and when the hub does, and takes no place afterwards.
func TestSocketsOfNodesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench){
		"the key is revoked": func(b *bench) {
			_, err := b.hub.Operator().RevokeKey(b.t.Context(), "ada")
			require.NoError(b.t, err)
		},
		"the hub stops": func(b *bench) { b.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPack(t, "one", sim.Config{})
			b := newBench(t, 0, withKeys(api.KeysRequired), func(b *bench) {
				b.settings.Passthrough = PassthroughOn
				b.settings.TenantLimits.Sockets = 1
				b.settings.Instances = append(b.settings.Instances, p.URL)
			})
			b.connected(1)
			ada, bob := b.key(apikeys.Wanted{Name: "ada", Tenant: "ada"}), b.key(apikeys.Wanted{Name: "bob", Tenant: "ada"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dial := func(secret string) (*websocket.Conn, error) {
				conn, _, err := websocket.Dial(ctx, b.web.URL+"/pack/ws", &websocket.DialOptions{HTTPHeader: bearer(secret)})
				return conn, err
			}
			conn, err := dial(ada)
			require.NoError(t, err)
			defer conn.CloseNow()
			_, err = dial(bob)
			require.Error(t, err, "the tenant has one")

			end(b)
			_, _, err = conn.Read(ctx)
			require.Error(t, err)
			require.NoError(t, ctx.Err(), "the socket has not ended")
			if !b.hub.Started() {
				return
			}
			eventually(t, func() bool {
				conn, err := dial(bob)
				if err == nil {
					_ = conn.CloseNow()
				}
				return err == nil
			}, time.Minute, 5*time.Millisecond)
		})
	}
}
