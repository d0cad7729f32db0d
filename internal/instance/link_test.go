package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

func TestUpstreamID(t *testing.T) {
	t.Parallel()
	chosen := uuid.NewString()
	var conn, other givenIDs
	require.Equal(t, chosen, conn.UpstreamID(job.Job{ID: chosen}))
	require.Equal(t, chosen, other.UpstreamID(job.Job{ID: chosen}), "another instance has not seen it")
	fresh := map[string]bool{chosen: true}
	for _, j := range []job.Job{
		{ID: chosen},                        // already used by its client, or by another tenant's
		{ID: uuid.NewString(), Attempts: 1}, // a later attempt
		{ID: "no UUID"},
		{ID: "6A52EA99-846A-4FED-B36F-18AEAC669F3E"}, // not in the form that servers take
	} {
		id := conn.UpstreamID(j)
		require.NoError(t, uuid.Validate(id))
		require.NotEqual(t, j.ID, id)
		require.False(t, fresh[id])
		fresh[id] = true
	}
}

func TestPrecedence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		now, never := time.Now(), time.Time{}
		for name, c := range map[string]struct {
			key         string
			freed, idle time.Time
			left, first bool
		}{
			"nobody's":                       {"", never, never, false, false},
			"just freed":                     {"k", now, never, true, false},
			"freed before":                   {"k", now.Add(-firstTurn), never, false, false},
			"seen idle for the first time":   {"k", never, never, true, true},
			"seen idle before":               {"k", never, now.Add(-time.Millisecond), true, false},
			"idle, and nobody has told":      {"k", never, now.Add(-firstTurnLost), false, false},
			"seen idle before it was freed":  {"k", now, now.Add(-time.Hour), true, false},
			"freed before it was seen again": {"k", now.Add(-firstTurn), now, false, false},
		} {
			left, first, wait := (&Precedence{key: c.key, freed: c.freed, idle: c.idle}).IsLeft(now)
			require.Equal(t, c.left, left, name)
			require.Equal(t, c.first, first, name)
			require.Equal(t, c.first, wait > 0, name)
		}
	})
}

// TestReconcilesOnlyWhatChanged shows that after a change at one instance the dispatcher looks at
// no other: it would open a connection to the second.
func TestReconcilesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	registry := fleet.NewRegistry()
	var asked []string
	parts := New(Config{
		Fleet: registry, Connected: &comfyui.Clients{}, Logger: slog.New(slog.DiscardHandler),
		Connect: func(i fleet.Instance) (*comfyui.Client, error) {
			asked = append(asked, i.Name)
			return nil, errors.New("none")
		},
	})
	changes := registry.Subscribe()
	defer changes.Close()
	one := sure(registry.AddStatic("http://127.0.0.1:10001"))
	two := sure(registry.AddStatic("http://127.0.0.1:10002"))
	parts.linker.reconcile(context.Background(), changes.Take())
	require.ElementsMatch(t, []string{one, two}, asked)
	asked = nil
	registry.SetSick(two, "a run hangs")
	parts.linker.reconcile(context.Background(), changes.Take())
	require.Equal(t, []string{two}, asked)
}

func TestUsable(t *testing.T) {
	t.Parallel()
	var conn past
	busy := func(queue int, job string, fence int64) fleet.Instance {
		return fleet.Instance{State: fleet.Busy, Report: fleet.InstanceReport{Up: true, Queue: queue, Job: job, Fence: fence}}
	}
	require.True(t, conn.Usable(fleet.Instance{State: fleet.Idle}))
	require.False(t, conn.Usable(busy(1, "", 0)), "nothing has run here")
	conn.Ended(job.Run{Key: "last", Fence: 7})
	for _, c := range []struct {
		what     string
		instance fleet.Instance
		want     bool
	}{
		{"idle", fleet.Instance{State: fleet.Idle}, true},
		{"sick", fleet.Instance{State: fleet.Sick, Report: fleet.InstanceReport{Job: "last", Queue: 1, Fence: 7}}, false},
		{"the run that has ended", busy(1, "last", 7), true},
		{"and another one behind it", busy(2, "last", 7), false},
		{"a run before it", busy(1, "before", 6), true},
		{"with that run behind it", busy(2, "before", 6), true},
		{"a later run of another hub", busy(1, "other", 8), false},
		{"nobody knows whose", busy(1, "", 0), false},
	} {
		require.Equal(t, c.want, conn.Usable(c.instance), c.what)
	}
}

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
		MaySecrets: func(fleet.Instance) bool { return false }, APIOnly: func(fleet.Instance) bool { return false }, Library: catalog.NewLibrary(),
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
