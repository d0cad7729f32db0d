package stream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keepers returns streams whose tenants, except "", leave room for others.
func keepers(t *testing.T) *Streams {
	t.Helper()
	s := New(Options{SpillDir: t.TempDir(), Shares: func(tenant string) bool { return tenant != "" }})
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// hold sends results to clients of a tenant that never connect, and returns the
// tenant's ledger.
func (s *Streams) hold(tenant string, clients, results int, body []byte) *ledger {
	for n := range clients {
		k := Key{Tenant: tenant, Client: fmt.Sprint(n)}
		s.Posted(k, time.Now())
		r := s.Begin(k, Attempt{Prompt: "p", Job: fmt.Sprint(tenant, n), Fence: 1})
		r.Send(Message{Kind: Other, Data: []byte(`{"type": "execution_start"}`)})
		for range results {
			r.Send(Message{Kind: Result, Binary: true, Data: body})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenants[tenant]
}

// Clients that never connect keep no more than their tenant may, at nobody else's
// cost.
func TestHeldMessagesAreBoundedPerTenant(t *testing.T) {
	t.Parallel()
	s := keepers(t)
	body := make([]byte, 3<<20) // shared by all, so that the test itself uses little memory
	quiet := s.hold("quiet", 1, 1, body)
	before := quiet.memory.Load()
	require.GreaterOrEqual(t, before, int64(len(body)))
	loud := s.hold("loud", 200, 1, body)
	require.LessOrEqual(t, loud.memory.Load(), int64(maxKept/4+4<<20))
	require.Greater(t, loud.memory.Load(), int64(maxKept/8))
	require.Equal(t, before, quiet.memory.Load())

	s.drop()
	require.Zero(t, loud.memory.Load())
	require.Zero(t, s.total.memory.Load(), "all of it is given back")
}

// Disk space is counted until the file is gone, and no tenant fills the disk.
func TestSpilledResultsAreBounded(t *testing.T) {
	t.Parallel()
	s := keepers(t)
	body := make([]byte, 1<<20)
	g := s.hold("loud", 2, 8, body)
	require.GreaterOrEqual(t, g.disk.Load(), int64(4<<20))
	g.disk.Store(maxSpilled / 4)
	s.hold("loud", 3, 8, body)
	require.Equal(t, int64(maxSpilled/4), g.disk.Load(), "nothing more goes there")
	other := s.hold("other", 1, 8, body)
	require.Positive(t, other.disk.Load())
	spilled := other.disk.Load()
	all := s.total.disk.Load()
	s.change(Key{Tenant: "other", Client: "0"}, false, func(c *client) { c.line.clear() })
	require.Zero(t, other.disk.Load())
	require.Equal(t, all-spilled, s.total.disk.Load())
}

// Clients that are named in prompts but never connect are forgotten beyond a limit;
// other tenants' clients are remembered.
func TestClientsWithoutSocketsAreBounded(t *testing.T) {
	t.Parallel()
	s := keepers(t)
	count := func(tenant string) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g := s.tenants[tenant]; g != nil {
			return g.clients
		}
		return 0
	}
	for n := range maxClients {
		s.Posted(Key{Tenant: "loud", Client: fmt.Sprint(n)}, time.Now())
	}
	require.Equal(t, maxClients/4, count("loud"))
	s.Posted(Key{Tenant: "quiet", Client: "1"}, time.Now())
	require.Equal(t, 1, count("quiet"))
	s.drop()
	require.Zero(t, count("loud"))
}

// A socket that reads too slowly is closed sooner if its tenant has more of them.
func TestSlowSocketsOfATenant(t *testing.T) {
	t.Parallel()
	all := &ledger{}
	all.tenants.Store(1)
	g := &ledger{above: all, part: func() bool { return true }}
	q := queue{limit: 8 << 20, ledger: g}
	item := func() item { return item{frame: &frame{kind: Result, data: make([]byte, 1<<20)}} }
	for range 4 {
		require.True(t, q.push(item()))
	}
	require.Greater(t, g.memory.Load(), int64(4<<20))
	g.keep(maxKept / 4)
	require.False(t, q.push(item()))
	q.clear()
	g.keep(-maxKept / 4)
	require.Zero(t, g.memory.Load())
	require.Zero(t, all.memory.Load())
}
