package fleet

import (
	"fmt"
	"net/netip"
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

func TestAddressesThatAHubMayCall(t *testing.T) {
	t.Parallel()
	keyed := Policy{Prefix: "/i/"}
	allowing := func(texts ...string) Policy {
		p := keyed
		for _, text := range texts {
			require.NoError(t, p.ParseAllowed(text))
		}
		return p
	}
	for name, c := range map[string]struct {
		policy Policy
		url    string
		direct bool
		from   string
		reason string // a part of it; empty when the hub may call
	}{
		"its own":                  {keyed, "https://10.0.0.5:7947/i/a", false, "10.0.0.5", ""},
		"its own, IPv6":            {keyed, "https://[fd00::5]:7947/i/a", false, "fd00::5", ""},
		"its own, mapped":          {keyed, "https://[::ffff:10.0.0.5]:7947/i/a", false, "10.0.0.5", ""},
		"loopback with a key":      {keyed, "https://127.0.0.1:7947/i/a", false, "127.0.0.1", ""},
		"plain":                    {keyed, "http://10.0.0.5:7947/i/a", false, "10.0.0.5", "plain HTTP"},
		"plain on loopback":        {keyed, "http://127.0.0.1:2019/i/a", false, "127.0.0.1", "plain HTTP"},
		"another machine":          {keyed, "https://10.0.0.6:7947/i/a", false, "10.0.0.5", "allow_direct 10.0.0.6"},
		"the hub's loopback":       {keyed, "https://127.0.0.1:6379/i/a", false, "10.0.0.5", "allow_direct 127.0.0.1"},
		"a cloud's metadata":       {keyed, "https://169.254.169.254/i/a", false, "169.254.169.254", "allow_direct"},
		"everywhere":               {keyed, "https://0.0.0.0:7947/i/a", false, "0.0.0.0", "allow_direct"},
		"nowhere":                  {keyed, "https://10.0.0.5:7947/i/a", false, "", "allow_direct"},
		"a name":                   {keyed, "https://localhost:7947/i/a", false, "127.0.0.1", "allow_direct localhost"},
		"a number":                 {keyed, "https://2130706433/i/a", false, "127.0.0.1", "allow_direct"},
		"short for loopback":       {keyed, "https://127.1/i/a", false, "127.0.0.1", "allow_direct"},
		"another path":             {keyed, "https://10.0.0.5:7947/restart/a", false, "10.0.0.5", "the path of something else"},
		"another instance's":       {keyed, "https://10.0.0.5:7947/i/b", false, "10.0.0.5", "the path of something else"},
		"a tunnel's address":       {keyed, "tunnel://a/i/a", false, "10.0.0.5", "no address"},
		"another scheme":           {keyed, "file:///etc/passwd", false, "10.0.0.5", "no address"},
		"a user":                   {keyed, "https://u:p@10.0.0.5:7947/i/a", false, "10.0.0.5", "more than host"},
		"a query":                  {keyed, "https://10.0.0.5:7947/i/a?x=1", false, "10.0.0.5", "more than host"},
		"direct":                   {keyed, "http://10.0.0.5:8188", true, "10.0.0.5", "allow_direct 10.0.0.5"},
		"direct, with TLS":         {keyed, "https://10.0.0.5:8188", true, "10.0.0.5", "allow_direct 10.0.0.5"},
		"direct, loopback":         {keyed, "http://127.0.0.1:2019", true, "127.0.0.1", "allow_direct 127.0.0.1"},
		"direct, allowed":          {allowing("10.0.0.5"), "http://10.0.0.5:8188", true, "10.0.0.5", ""},
		"direct, allowed network":  {allowing("10.1.0.0/16", "10.0.0.0/24"), "http://10.0.0.5:8188", true, "10.0.0.9", ""},
		"direct, another network":  {allowing("10.1.0.0/16"), "http://10.0.0.5:8188", true, "10.0.0.9", "allow_direct 10.0.0.5"},
		"direct, allowed name":     {allowing("GPU.example.com"), "http://gpu.EXAMPLE.com:8188/comfy", true, "10.0.0.9", ""},
		"direct, name below it":    {allowing("example.com"), "http://gpu.example.com:8188", true, "10.0.0.9", "allow_direct gpu.example.com"},
		"second network interface": {allowing("10.0.0.6"), "https://10.0.0.6:7947/i/a", false, "10.0.0.5", ""},
		"local":                    {Policy{Prefix: "/i/", Local: true}, "http://127.0.0.1:7947/i/a", false, "127.0.0.1", ""},
		"local, direct":            {Policy{Prefix: "/i/", Local: true}, "http://localhost:8188", true, "", ""},
		"local, elsewhere":         {Policy{Prefix: "/i/", Local: true}, "http://10.0.0.1/i/a", false, "127.0.0.1", "plain HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := Report{Agent: "x", Instances: []InstanceReport{{Name: "a", URL: c.url, Direct: c.direct, Up: true, GPU: "g"}}}
			if c.from != "" {
				given.Sender.Addr = netip.MustParseAddr(c.from)
			}
			allowed, faults := c.policy.Restrict(given)
			i := allowed.Instances[0]
			if c.reason == "" {
				require.Empty(t, faults)
				require.Equal(t, given.Instances[0], i)
				return
			}
			require.Empty(t, i.URL)
			require.False(t, i.Up)
			require.Equal(t, notAllowed, i.Reason, "tenants see it, and no address")
			require.Contains(t, faults["a"], c.reason)
			require.Equal(t, c.url, given.Instances[0].URL, "the report itself is not changed")
		})
	}
	for _, bad := range []string{"", "http://10.0.0.5", "10.0.0.5:8188", "a/b", "*.example.com", "a b"} {
		require.Error(t, new(Policy).ParseAllowed(bad), bad)
	}
}

// What a machine at the other end of a tunnel says is reached in that tunnel or not at all.
func TestAddressesInATunnel(t *testing.T) {
	t.Parallel()
	p := Policy{Prefix: "/i/", Local: true}
	require.NoError(t, p.ParseAllowed("10.0.0.5"))
	for url, allowed := range map[string]bool{
		"tunnel://attic/i/a":          true,
		"tunnel://attic/i/b":          false,
		"tunnel://attic/restart/a":    false,
		"tunnel://user:x@attic/i/a":   false,
		"tunnel://attic/i/a?x=1":      false,
		"http://127.0.0.1:2019/i/a":   false,
		"http://10.0.0.5:8188/i/a":    false,
		"https://169.254.169.254/i/a": false,
		"file:///i/a":                 false,
		"tunnel://attic/i/%61":        false,
		"tunnel://attic:0/../i/a":     false,
		"TUNNEL://attic/i/a":          true, // a scheme has no case
		"tunnel://attic/i/a#fragment": false,
		"tunnel://[fd00::1]:8188/i/a": true, // the host means nothing
	} {
		_, faults := p.Restrict(Report{Instances: []InstanceReport{{Name: "a", URL: url}}, Sender: Sender{Tunnel: true}})
		require.Equal(t, allowed, len(faults) == 0, url)
	}
	_, faults := p.Restrict(Report{Instances: []InstanceReport{{Name: "a", URL: "tunnel://attic/i/a", Direct: true}}, Sender: Sender{Tunnel: true}})
	require.NotEmpty(t, faults, "a direct address is none in the tunnel")
}
