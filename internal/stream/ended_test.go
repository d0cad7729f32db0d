package stream

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever runs of a job turn up after its end was told: the socket hears nothing more of
// it, unless its client asks.
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
		r.streams.change(me, false, func(c *client) { clear(c.fences) }) // what the hub knew of other hubs' runs
		late := run(2)
		late.Send(other("more of a"))
		late.End(other(success("a")))
		require.NotContains(t, fmt.Sprint(p.settled()), `"a"`)
		r.streams.Ended(me, Attempt{Prompt: "a"}, other(start("a")), other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(0), null("a")), p.settled(), "its client has asked")
	})
}

// A prompt that is replayed because it was posted again is written even after its end.
func TestReplayIsWritten(t *testing.T) {
	t.Parallel()
	var jobs []string
	var l line
	l.attach(func(it item) {
		if it.frame != nil {
			jobs = append(jobs, it.job)
		}
	}, false)
	q := l.begin("a", 1)
	q.job = "job a"
	l.end(q, nil)
	require.Equal(t, []string{"job a"}, jobs)
	require.True(t, l.replay("a"))
	require.Equal(t, []string{"job a", ""}, jobs)
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
