package instance

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// linked are the links to one simulated instance.
type linked struct {
	*Room
	t *testing.T
}

// idleAbove gives the instance no work.
type idleAbove struct{}

func (idleAbove) Wake()                              {}
func (idleAbove) Freed()                             {}
func (idleAbove) Clear(context.Context, *Link) error { return nil }

func newLinked(t *testing.T) *linked {
	t.Helper()
	server := sure(sim.New(sim.Config{}))
	web := loopback.Serve(server.Handler())
	log, registry := slog.New(slog.DiscardHandler), fleet.NewRegistry()
	ctx, stop := context.WithCancel(context.Background())
	var work panics.Group
	streams := stream.New(stream.Options{SpillDir: t.TempDir(), Logger: log})
	b := &linked{t: t, Room: New(Config{
		Fleet: registry, Connected: comfyui.NewClients(), Streams: streams, Above: idleAbove{}, Ctx: ctx, Work: &work, Logger: log,
		Connect: func(i fleet.Instance) (*comfyui.Client, error) {
			return comfyui.NewClient(i.URL, comfyui.Options{Dial: loopback.Dial})
		},
		MaySecrets: func(fleet.Instance) bool { return false }, Library: catalog.NewLibrary(),
		Learned:        func(string, *catalog.Info, comfyui.Version) {},
		ContactTimeout: func() time.Duration { return 15 * time.Second },
	})}
	name := sure(registry.AddStatic(web.URL))
	registry.Observe(fleet.InstanceReport{Name: name, URL: web.URL, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1})
	work.Go(log, "links", func() { b.Follow(ctx) })
	t.Cleanup(func() {
		require.NoError(t, streams.Close(context.Background()))
		stop()
		work.Wait()
		b.Links.Close()
		server.Kill()
		web.CloseClientConnections()
		web.Close()
		server.Close()
	})
	loopback.Eventually(t, func() bool { return b.Links.First() != nil }, deadlineOfLinks, time.Millisecond)
	return b
}

// deadlineOfLinks bounds each wait in these tests. A healthy one takes milliseconds.
const deadlineOfLinks = time.Minute

// clientsOf returns a tenant's clients that have a panel.
func (b *linked) clientsOf(tenant string) map[string]bool {
	b.Panels.mu.Lock()
	defer b.Panels.mu.Unlock()
	clients := map[string]bool{}
	for p := range b.Panels.all {
		if p.key.Tenant == tenant {
			clients[p.key.Client] = true
		}
	}
	return clients
}

// introduce gets a panel for a client. On a slow machine its socket may take longer to open than a
// call waits.
func (b *linked) introduce(k stream.Key) (alias comfyui.Alias) {
	b.t.Helper()
	loopback.Eventually(b.t, func() (ok bool) {
		alias, ok = b.Panels.Introduce(b.t.Context(), b.Links.First(), k)
		return ok
	}, deadlineOfLinks, time.Millisecond, k.Client)
	return alias
}

// A tenant with too many panels loses its least recently used one. No other tenant loses one.
func TestPanelsOfOneTenant(t *testing.T) {
	t.Parallel()
	b := newLinked(t)
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
	bubble(t, func(t *testing.T) {
		b := newLinked(t)
		conn := b.Links.of(b.Links.First())
		b.Panels.mu.Lock()
		b.Panels.all = map[*panel]struct{}{}
		cancelled := map[string]bool{}
		for n := range maxPanels {
			k := stream.Key{Tenant: fmt.Sprint("t", n%(maxPanels/4)), Client: fmt.Sprint(n)}
			conn.overheard.listen()
			b.Panels.all[&panel{
				conn: conn, key: k, used: time.Now().Add(time.Duration(n-maxPanels) * time.Second),
				cancel: func() { cancelled[k.Client] = true }, // called with the lock held
			}] = struct{}{}
		}
		b.Panels.mu.Unlock()
		_, ok := b.Panels.Introduce(t.Context(), b.Links.First(), stream.Key{Tenant: "new", Client: "c"})
		require.False(t, ok)
		require.Empty(t, b.clientsOf("new"))
		b.introduce(stream.Key{Tenant: "t1", Client: "c"})
		b.Panels.mu.Lock()
		require.Len(t, b.Panels.all, maxPanels)
		require.Equal(t, map[string]bool{"1": true}, cancelled, "its oldest")
		b.Panels.mu.Unlock()
		require.Len(t, b.clientsOf("t1"), 4)
	})
}

func TestMain(m *testing.M) { loopback.Main(m) }

func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel() // here, where the linter sees it
	loopback.Test(t, test)
}

// sure returns the result of a call that does not fail.
func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
