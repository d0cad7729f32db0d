package dispatch

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// clientsOf returns the clients of a tenant that have a panel.
func (d *Dispatcher) clientsOf(tenant string) map[string]bool {
	d.panels.mu.Lock()
	defer d.panels.mu.Unlock()
	clients := map[string]bool{}
	for p := range d.panels.all {
		if p.key.Tenant == tenant {
			clients[p.key.Client] = true
		}
	}
	return clients
}

// introduce gets a panel for a client. On a slow machine its socket may take longer to open
// than a call waits for it.
func (b *dispatching) introduce(k stream.Key) (alias comfyui.Alias) {
	b.t.Helper()
	eventually(b.t, func() (ok bool) {
		alias, ok = b.Introduce(b.t.Context(), b.First(), k)
		return ok
	}, deadline, time.Millisecond, k.Client)
	return alias
}

// A tenant with too many panels loses its least recently used one. No other tenant
// loses one.
func TestPanelsOfOneTenant(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	eventually(t, func() bool { return b.First() != nil }, deadline, time.Millisecond)
	introduce := func(tenant, client string) (alias string) {
		return b.introduce(stream.Key{Tenant: tenant, Client: client}).Upstream
	}
	introduce("bob", "c1")
	aliases := map[string]string{}
	for n := range maxTenantPanels {
		client := fmt.Sprint("c", n)
		aliases[client] = introduce("ada", client)
	}
	require.Equal(t, aliases["c0"], introduce("ada", "c0"), "it has one")
	introduce("ada", "more")
	clients := b.clientsOf("ada")
	require.Len(t, clients, maxTenantPanels)
	require.False(t, clients["c1"], "the oldest has gone")
	for _, client := range []string{"c0", "c2", "more"} {
		require.True(t, clients[client], client)
	}
	require.Equal(t, map[string]bool{"c1": true}, b.clientsOf("bob"))
	require.NotEqual(t, aliases["c1"], introduce("ada", "c1"), "a new one, by a name that nobody knows")
	require.False(t, b.clientsOf("ada")["c2"])
}

// When all panels are taken, a tenant that has some gives up one of its own, and a
// tenant that has none gets none.
func TestAllPanelsAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		eventually(t, func() bool { return b.First() != nil }, deadline, time.Millisecond)
		conn := b.connectionOf(b.First())
		b.panels.mu.Lock()
		b.panels.all = map[*panel]struct{}{}
		cancelled := map[string]bool{}
		for n := range maxPanels {
			k := stream.Key{Tenant: fmt.Sprint("t", n%(maxPanels/4)), Client: fmt.Sprint(n)}
			conn.overheard.listen()
			b.panels.all[&panel{
				conn: conn, key: k, used: time.Now().Add(time.Duration(n-maxPanels) * time.Second),
				cancel: func() { cancelled[k.Client] = true }, // called with the lock held
			}] = struct{}{}
		}
		b.panels.mu.Unlock()
		_, ok := b.Introduce(t.Context(), b.First(), stream.Key{Tenant: "new", Client: "c"})
		require.False(t, ok)
		require.Empty(t, b.clientsOf("new"))
		b.introduce(stream.Key{Tenant: "t1", Client: "c"})
		b.panels.mu.Lock()
		require.Len(t, b.panels.all, maxPanels)
		require.Equal(t, map[string]bool{"1": true}, cancelled, "its oldest")
		b.panels.mu.Unlock()
		require.Len(t, b.clientsOf("t1"), 4)
	})
}

// An unused panel is closed.
func TestIdlePanel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Logger: slog.New(slog.DiscardHandler)})
		conn := &connection{log: d.log}
		conn.overheard.listen()
		var closed atomic.Bool
		p := &panel{conn: conn, used: time.Now(), cancel: func() { closed.Store(true) }}
		d.panels.all = map[*panel]struct{}{p: {}}
		stop := p.watchIdle(d)
		time.Sleep(panelIdle - time.Second)
		require.True(t, d.panels.touch(p))
		time.Sleep(panelIdle - time.Second)
		synctest.Wait()
		require.False(t, closed.Load())
		time.Sleep(panelIdle / 2)
		synctest.Wait()
		require.True(t, closed.Load())
		require.False(t, d.panels.touch(p))
		stop()
		d.work.Wait()
	})
}
