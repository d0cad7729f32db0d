package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A dropped job that was held is never shown. One that is being shown gets the
// given end. One that has ended is left alone.
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
