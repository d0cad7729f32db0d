package fleet

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// signed returns a report of an agent that has a key.
func signed(key, agent, host string, boot int64, seq uint64, names ...string) Report {
	r := report(agent, host, boot, seq, names...)
	r.Sender.Key = key
	return r
}

func TestALiveNameStaysWithItsKey(t *testing.T) {
	t.Parallel()
	for name, theft := range map[string]Report{
		"later boot":   signed("thief", "a", "thief:1", 11, 1, "a"),
		"same boot":    signed("thief", "a", "thief:1", 10, 1<<60, "a"),
		"earlier boot": signed("thief", "a", "thief:1", 9, 1, "a"),
		"no key":       report("a", "thief:1", 11, 1, "a"),
	} {
		r := NewRegistry()
		require.NoError(t, r.Apply(signed("owner", "a", "h:1", 10, 1, "a")))
		require.ErrorIs(t, r.Apply(theft), ErrNameTaken, name)
		r.AgentLeft("a", 10, theft.Sender.Key)
		require.Equal(t, Idle, state(t, r, "a"), "%s: a leave message in another's name", name)
		i, _ := r.Instance("a")
		require.Equal(t, "https://h:1/i/a", i.URL, name)
		require.Equal(t, "owner", i.Key, name)
		require.NoError(t, r.Apply(signed("owner", "a", "h:1", 10, 2, "a")), "%s: the owner goes on", name)
	}
}

func TestAddressesStayForABoot(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	require.NoError(t, r.Apply(signed("k", "a", "h:1", 10, 1, "a", "b")))
	for name, address := range map[string]string{
		"host": "https://x:1/i/a", "port": "https://h:2/i/a", "scheme": "http://h:1/i/a", "path": "https://h:1/i/b",
	} {
		moved := signed("k", "a", "h:1", 10, 2, "a", "b")
		moved.Instances[0].URL = address
		require.ErrorIs(t, r.Apply(moved), ErrMoved, name)
	}
	require.NoError(t, r.Apply(signed("k", "a", "h:1", 10, 3, "b")), "what was dropped has used up no number")
	require.ErrorIs(t, r.Apply(signed("k", "a", "x:1", 10, 4, "a", "b")), ErrMoved, "also one that was gone meanwhile")
	require.NoError(t, r.Apply(signed("k", "a", "h:1", 10, 4, "a", "b", "new")))
	require.NoError(t, r.Apply(signed("k", "a", "h:1", 11, 1, "a")), "a restart may serve elsewhere")

	for n := range maxMoves {
		_ = r.Apply(signed("k", "a", "h:1", 11, uint64(n+2), fmt.Sprint("n", n)))
	}
	require.ErrorIs(t, r.Apply(signed("k", "a", "h:1", 11, 1<<30, "onemore")), ErrTooMany)
}

// The name of an instance also leads to its jobs.
func TestInstanceNamesOutlastARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		require.NoError(t, r.Apply(signed("k", "a", "h:1", 10, 1, "left")))
		r.AgentLeft("a", 10, "k")
		require.ErrorIs(t, r.Apply(signed("thief", "b", "x:1", 20, 1, "left")), ErrNameTaken)
		require.NoError(t, r.Apply(signed("k", "a", "h:1", 11, 1, "left")))
		r.AgentLeft("a", 11, "k")
		time.Sleep(nameKeptFor + time.Second)
		require.NoError(t, r.Apply(signed("other", "b", "x:1", 20, 2, "left")), "an agent that was given another name")
	})
}

func TestRefusedAgentsShow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry()
		changes := r.Subscribe()
		defer changes.Close()
		r.Refuse("a", "another key")
		<-changes.Ready()
		require.Len(t, r.Instances(), 1)
		i := r.Instances()[0]
		require.Equal(t, Instance{Name: "a", Agent: "a", Kind: KindComfyUI, State: Offline, Reason: "another key", LastSeen: i.LastSeen}, i)
		require.NoError(t, r.Apply(signed("k", "a", "h:1", 1, 1, "x")))
		require.Len(t, r.Instances(), 1, "listened to again")

		r.Refuse("a", "a thief")
		i, _ = r.Instance("x")
		require.Equal(t, Idle, i.State, "who is well is not touched")
		r.AgentLeft("a", 1, "k")
		i, _ = r.Instance("x")
		require.Equal(t, "a thief", i.Reason)
		time.Sleep(refusedFor + time.Second)
		i, _ = r.Instance("x")
		require.Equal(t, "its agent has left", i.Reason)

		for n := range 2 * maxRefused {
			r.Refuse(fmt.Sprint("n", n), "x")
		}
		require.Len(t, r.Instances(), maxRefused+1)
	})
}

func TestFleetIsBounded(t *testing.T) {
	t.Parallel()
	r := NewRegistry()
	for n := range maxAgents {
		require.NoError(t, r.Apply(signed("k", fmt.Sprint("n", n), "h:1", 1, 1)))
	}
	require.ErrorIs(t, r.Apply(signed("k", "onemore", "h:1", 1, 1)), ErrTooMany)
	require.NoError(t, r.Apply(signed("k", "n1", "h:1", 1, 2, "i")))
}
