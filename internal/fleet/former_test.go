package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// A hub that has restarted shows the instances that are gone, and those that were unhealthy still are.
func TestRemember(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		before := NewRegistry()
		require.NoError(t, before.Apply(report("a", "h:1", 1, 1, "crashed")))
		require.NoError(t, before.Apply(report("b", "h:2", 1, 1, "stopped")))
		require.NoError(t, before.Apply(report("c", "h:3", 1, 1, "broken", "cured", "restarted")))
		for _, name := range []string{"broken", "restarted"} {
			before.SetBroken(name, "its GPU reports an error")
		}
		before.SetSick("cured", "it does not start what it accepts")
		before.AgentLeft("a", 1, "")
		before.AgentStopped("b", 1, "")
		seen := time.Now()
		time.Sleep(time.Hour)

		r := NewRegistry()
		r.Remember(before.Formers())
		require.Len(t, r.Instances(), 5)
		i, _ := r.Instance("crashed")
		require.Equal(t, Offline, i.State)
		require.Equal(t, seen, i.LastSeen)
		require.False(t, i.Left)
		i, _ = r.Instance("stopped")
		require.True(t, i.Left)
		require.Empty(t, i.URL, "nobody dials it")

		again := report("c", "h:3", 2, 1, "broken", "cured", "restarted")
		again.Instances[2].Boot++
		require.NoError(t, r.Apply(again))
		require.Equal(t, Sick, state(t, r, "broken"), "the same process")
		require.Equal(t, Idle, state(t, r, "cured"), "it has nothing left on which it hangs")
		require.Equal(t, Idle, state(t, r, "restarted"))

		late := NewRegistry()
		require.NoError(t, late.Apply(report("c", "h:3", 2, 1, "broken", "cured")))
		late.Remember(before.Formers())
		require.Equal(t, Sick, state(t, late, "broken"), "its agent was faster than Redis")
		require.Equal(t, Idle, state(t, late, "cured"))

		time.Sleep(2 * 24 * time.Hour)
		old := NewRegistry()
		old.Remember(before.Formers())
		require.Equal(t, Offline, state(t, old, "crashed"))
		_, known := old.Instance("stopped")
		require.False(t, known, "it left on purpose, long ago")
		require.True(t, old.Forget("crashed"))
	})
}

// The names of absent agents stay theirs though the hub restarts.
func TestRememberOwners(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		signed := func(agent, key string, names ...string) Report {
			r := report(agent, "h:1", 1, 1, names...)
			r.Sender.Key = key
			return r
		}
		before := NewRegistry()
		require.NoError(t, before.Apply(signed("a", "key of a", "a")))
		r := NewRegistry()
		r.Remember(before.Formers())
		require.ErrorIs(t, r.Apply(signed("thief", "another", "a", "b")), ErrNameTaken)
		require.Equal(t, Offline, state(t, r, "a"))
		require.Equal(t, Idle, state(t, r, "b"))
		require.NoError(t, r.Apply(signed("a", "key of a", "a")))
		require.Equal(t, Idle, state(t, r, "a"))

		r = NewRegistry()
		r.Remember(before.Formers())
		time.Sleep(nameKeptFor + time.Second)
		require.NoError(t, r.Apply(signed("heir", "another", "a")))
	})
}
