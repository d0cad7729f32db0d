package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The end of a job tells how many its caller has left, so that no socket asks.
func TestEndTellsTheCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// between happens while the end is written.
		between func(r *rig)
		asks    bool
	}{
		"nothing else happens":                    {func(*rig) {}, false},
		"the hint of the end comes":               {func(r *rig) { r.streams.JobMoved("tenant", "me") }, false},
		"another job is queued":                   {func(r *rig) { r.setCount("me", 7); r.streams.JobChanged("tenant", "me") }, true},
		"somebody says that all may have changed": {func(r *rig) { r.setCount("me", 0); r.streams.StatusChanged() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, r *rig) {
				r.ident.Caller = "me"
				r.setCount("me", 5)
				p, other := r.open("/ws?clientId=me"), r.open("/ws?clientId=tab")
				run := r.run("me", "a")
				r.streams.JobChanged("tenant", "me")
				time.Sleep(time.Second)
				p.settled()
				other.settled()
				r.mu.Lock()
				asked := r.asked
				r.mu.Unlock()

				counting := r.streams.Counting("me")
				r.setCount("me", 4)
				c.between(r)
				counting.Counted(4)
				run.EndCounted()
				counting.Tell()
				time.Sleep(time.Second)
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				want := status(r.counts["me"])
				require.Contains(t, p.settled(), want)
				got := other.settled()
				require.Equal(t, want, got[len(got)-1], "the caller's other socket is told, too")
				if c.asks {
					require.Greater(t, r.asked, asked)
				} else {
					require.Equal(t, asked, r.asked)
				}
			})
		})
	}
}

// A socket that is opened while the end is written may have asked before it.
func TestEndTellsTheCountToANewSocket(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Caller = "me"
		r.setCount("me", 5)
		counting := r.streams.Counting("me")
		p := r.open("/ws?clientId=me")
		synctest.Wait()
		p.settled()
		r.setCount("me", 4)
		r.streams.JobMoved("tenant", "me")
		counting.Counted(4)
		counting.Tell()
		time.Sleep(time.Second)
		got := p.settled()
		require.Equal(t, status(4), got[len(got)-1])
	})
}

// A number that comes while another is asked for is not taken for the newer one.
func TestCountIsAskedAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Caller = "me"
		r.setCount("me", 2)
		p := r.open("/ws?clientId=me")
		p.settled()
		// Two ends at the same time, whose replies come in the wrong order.
		first, second := r.streams.Counting("me"), r.streams.Counting("me")
		one, two := r.run("me", "a"), r.run("me", "b")
		r.setCount("me", 0)
		second.Counted(0)
		first.Counted(1)
		one.EndCounted()
		two.EndCounted()
		first.Tell()
		second.Tell()
		time.Sleep(time.Second)
		require.NotContains(t, p.settled(), status(1))
	})
}
