package stream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keepers returns streams whose tenants, except "", leave room for others.
func keepers(t *testing.T) *Streams {
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
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	return s.clients.tenants[tenant]
}

// Clients that never connect keep no more than their tenant may, and at nobody else's expense.
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

	s.clients.drop()
	require.Zero(t, loud.memory.Load())
	require.Zero(t, s.clients.total.memory.Load(), "all of it is given back")
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
	all := s.clients.total.disk.Load()
	s.clients.change(Key{Tenant: "other", Client: "0"}, false, func(c *client) { c.line.drop(func(*sequence) bool { return true }) })
	require.Zero(t, other.disk.Load())
	require.Equal(t, all-spilled, s.clients.total.disk.Load())
}

// Clients that are named in prompts but never connect are forgotten beyond a limit;
// other tenants' clients are remembered.
func TestClientsWithoutSocketsAreBounded(t *testing.T) {
	t.Parallel()
	s := keepers(t)
	count := func(tenant string) int {
		s.clients.mu.Lock()
		defer s.clients.mu.Unlock()
		if g := s.clients.tenants[tenant]; g != nil {
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
	s.clients.drop()
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

func queued(k Kind, s string) item {
	return item{frame: &frame{kind: k, data: []byte(s), size: int64(len(s))}}
}

// drain pops everything.
func drain(q *queue) (got []string) {
	r := &recorder{}
	for {
		it, ok := q.pop()
		if !ok {
			return r.words
		}
		r.out(it)
	}
}

func TestQueueShedsBeforeItRefuses(t *testing.T) {
	t.Parallel()
	q := queue{limit: 8 * (frameOverhead + 2)}
	for i := range 2 {
		require.True(t, q.push(queued(Progress, fmt.Sprint("p", i))))
		require.True(t, q.push(queued(ProgressState, fmt.Sprint("s", i))))
		require.True(t, q.push(queued(Preview, fmt.Sprint("i", i))))
		require.True(t, q.push(queued(Other, fmt.Sprint("o", i))))
	}
	require.True(t, q.push(queued(Result, "r0")), "the old previews and progress make room")
	require.Equal(t, 6, q.len())
	require.True(t, q.push(item{status: true}))
	require.True(t, q.push(queued(Other, "o2")))
	require.False(t, q.push(queued(Other, "o3")))
	require.Equal(t, words("o0", "p1", "s1", "i1", "o1", "r0", "status", "o2"), drain(&q))
	require.Zero(t, q.memory)
}

func TestQueueTakesOneOfAnySize(t *testing.T) {
	t.Parallel()
	q := queue{limit: 10}
	require.True(t, q.push(queued(Result, "far beyond the limit")))
	require.False(t, q.push(queued(Other, "x")))
	require.Equal(t, words("far beyond the limit"), drain(&q))
	require.True(t, q.push(queued(Other, "x")))
}

func TestQueueKeepsItsOrderForLong(t *testing.T) {
	t.Parallel()
	q := queue{limit: 1 << 30}
	next := 0
	for i := range 5000 {
		require.True(t, q.push(queued(Other, fmt.Sprint(i))))
		if i%3 != 0 {
			it, ok := q.pop()
			require.True(t, ok)
			require.Equal(t, fmt.Sprint(next), string(it.frame.data))
			next++
		}
	}
	require.Len(t, drain(&q), 5000-next)
	require.LessOrEqual(t, len(q.items), 1, "an empty queue keeps nothing")
	q.push(queued(Other, "x"))
	q.clear()
	require.Zero(t, q.memory)
	require.Zero(t, q.len())
}

// Whatever runs of a job turn up after its end was told, the socket hears no more of it unless its
// client asks.
func TestOneEndPerSocket(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		me := Key{Client: "me"}
		run := func(fence int64) *Run {
			run := r.streams.Begin(me, Attempt{Prompt: "a", Job: "job a", Fence: fence})
			run.Send(other(start("a")))
			return run
		}
		p := r.open("/ws?clientId=me")
		p.settled()
		run(1).End(other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(0), null("a")), p.settled())
		r.streams.clients.change(me, false, func(c *client) { clear(c.fences.newest) }) // what the hub knew about other hubs' runs
		late := run(2)
		late.Send(other("more of a"))
		late.End(other(success("a")))
		require.NotContains(t, fmt.Sprint(p.settled()), `"a"`)
		r.streams.Ended(me, Attempt{Prompt: "a"}, other(start("a")), other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(0), null("a")), p.settled(), "its client has asked")
	})
}

func TestEndedJobsAreBounded(t *testing.T) {
	t.Parallel()
	var e endedJobs
	for n := range 3 * maxEnded {
		e.add(fmt.Sprint(n))
		e.add("")
	}
	require.Len(t, e.known, maxEnded)
	require.Len(t, e.order, maxEnded)
	require.True(t, e.has(fmt.Sprint(3*maxEnded-1)))
	require.False(t, e.has(""))
}

// A dropped job that was held is never shown. One that is being shown gets the given end. One that
// has ended is left alone.
func TestDrop(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		me := Key{Client: "me"}
		begin := func(prompt string) *Run {
			run := r.streams.Begin(me, Attempt{Prompt: prompt, Job: "job " + prompt, Fence: 1})
			run.Send(other(start(prompt)))
			return run
		}
		drop := func(prompt string) { r.streams.Drop(me, "job "+prompt, other("interrupted "+prompt)) }
		p := r.open("/ws?clientId=me")
		p.settled()
		a, b := begin("a"), begin("b")
		require.True(t, r.streams.Shows(me, "job a"))
		require.False(t, r.streams.Shows(me, "job b"))
		require.False(t, r.streams.Shows(Key{Client: "you"}, "job a"))
		drop("b")
		b.Send(other("more of b"))
		b.End(other(success("b")))
		require.Equal(t, words(start("a")), p.settled())
		drop("a")
		drop("a")
		a.End(other(success("a")))
		require.Equal(t, words("interrupted a", status(0), null("a")), p.settled())
		c := begin("c")
		c.End(other(success("c")))
		require.False(t, r.streams.Shows(me, "job c"))
		drop("c")
		require.Equal(t, words(start("c"), success("c"), status(0), null("c")), p.settled())
		drop("unknown")
	})
}

func TestResultsGoToDisk(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	l.buffer.limits = lineLimits{hold: 1 << 20, spill: 10, spillDir: t.TempDir()}
	l.attach(r.out, false)
	a, b := l.begin("a", 1), l.begin("b", 1)
	for _, s := range []string{"12345", "67890", "abcde", "fghij"} {
		l.send(b, message(Result, s))
	}
	l.send(a, message(Result, "open"))
	l.end(a, nil)
	require.Equal(t, words("disk:open", closing("a", 1), "12345", "67890", "disk:abcde", "disk:fghij"), r.take())
	require.Equal(t, int64(10), l.buffer.results)
	require.NotNil(t, b.log.spill)
	l.end(b, nil)
	l.confirm(2)
	require.Zero(t, l.buffer.memory)
	require.Zero(t, l.buffer.results)
}

func TestSpillFileOutlivesItsLog(t *testing.T) {
	t.Parallel()
	l := testLine()
	l.buffer.limits.spill = 0
	l.buffer.limits.spillDir = filepath.Join(t.TempDir(), "made when needed")
	q := queue{limit: 1 << 20}
	l.attach(func(it item) { q.push(it) }, false)
	a := l.begin("a", 1)
	l.send(a, message(Result, "picture"))
	l.lose(a)
	_, ok := q.pop() // the probe
	require.True(t, ok)
	it, ok := q.pop()
	require.True(t, ok)
	require.Equal(t, "picture", string(must(it.frame.load())))
	it.release()
	_, err := it.frame.load()
	require.Error(t, err, "the last user has closed the file")
	require.Empty(t, must(os.ReadDir(l.buffer.limits.spillDir)))
}

func TestSpillFails(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	l.buffer.limits.spill, l.buffer.limits.spillDir = 0, file
	l.attach(r.out, false)
	a := l.begin("a", 1)
	l.send(a, message(Result, "picture"))
	require.Equal(t, words("picture"), r.take(), "it stays in memory")
	require.Error(t, l.buffer.spillErr)
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	l.buffer.limits.hold = 20 * frameOverhead
	l.attach(r.out, false)
	a, b := l.begin("a", 1), l.begin("b", 1)
	l.send(a, other("a start"))
	l.send(b, other("b start"))
	l.send(b, message(Executing, "b executing 1"))
	l.send(b, message(Result, "b result"))
	for range 50 {
		l.send(b, other("b executed"))
		require.LessOrEqual(t, l.buffer.memory, l.buffer.limits.hold)
	}
	require.Positive(t, l.cuts)
	l.end(b, []Message{other("b success")})
	r.take()
	l.end(a, nil)
	require.Equal(t, words(closing("a", 1), "b start", "b executing 1", "b result", "b success", closing("b", 2)), r.take(),
		"what is in /history is left out, the rest is a sequence still")

	// Unconfirmed ones go first.
	l.cuts = 0
	for i := range 100 {
		l.ended(Attempt{Prompt: fmt.Sprint(i)}, []Message{other("start"), other("error")})
		require.LessOrEqual(t, l.buffer.memory, l.buffer.limits.hold)
	}
	require.Positive(t, l.cuts)
	require.Less(t, len(l.lists.sent), 11)
	// Without a socket, the oldest go.
	l.detach()
	for i := range 100 {
		l.ended(Attempt{Prompt: fmt.Sprint(i)}, []Message{other("start"), other("error")})
		require.LessOrEqual(t, l.buffer.memory, l.buffer.limits.hold)
	}
}
