package stream

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		r.streams.change(me, false, func(c *client) { clear(c.fences) }) // what the hub knew about other hubs' runs
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
	l.limits = lineLimits{hold: 1 << 20, spill: 10, spillDir: t.TempDir()}
	l.attach(r.out, false)
	a, b := l.begin("a", 1), l.begin("b", 1)
	for _, s := range []string{"12345", "67890", "abcde", "fghij"} {
		l.send(b, message(Result, s))
	}
	l.send(a, message(Result, "open"))
	l.end(a, nil)
	require.Equal(t, words("disk:open", closing("a", 1), "12345", "67890", "disk:abcde", "disk:fghij"), r.take())
	require.Equal(t, int64(10), l.results)
	require.NotNil(t, b.log.spill)
	l.end(b, nil)
	l.confirm(2)
	require.Zero(t, l.memory)
	require.Zero(t, l.results)
}

func TestSpillFileOutlivesItsLog(t *testing.T) {
	t.Parallel()
	l := testLine()
	l.limits.spill = 0
	l.limits.spillDir = filepath.Join(t.TempDir(), "made when needed")
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
	require.Empty(t, must(os.ReadDir(l.limits.spillDir)))
}

func TestSpillFails(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	l.limits.spill, l.limits.spillDir = 0, file
	l.attach(r.out, false)
	a := l.begin("a", 1)
	l.send(a, message(Result, "picture"))
	require.Equal(t, words("picture"), r.take(), "it stays in memory")
	require.Error(t, l.spillErr)
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	l.limits.hold = 20 * frameOverhead
	l.attach(r.out, false)
	a, b := l.begin("a", 1), l.begin("b", 1)
	l.send(a, other("a start"))
	l.send(b, other("b start"))
	l.send(b, message(Executing, "b executing 1"))
	l.send(b, message(Result, "b result"))
	for range 50 {
		l.send(b, other("b executed"))
		require.LessOrEqual(t, l.memory, l.limits.hold)
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
		require.LessOrEqual(t, l.memory, l.limits.hold)
	}
	require.Positive(t, l.cuts)
	require.Less(t, len(l.sent), 11)
	// Without a socket, the oldest go.
	l.detach()
	for i := range 100 {
		l.ended(Attempt{Prompt: fmt.Sprint(i)}, []Message{other("start"), other("error")})
		require.LessOrEqual(t, l.memory, l.limits.hold)
	}
}
