package fleet

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var golden = Report{
	Agent: "gpu-box", Boot: 1795226193538, Seq: 42,
	Instances: []InstanceReport{
		{
			Name: "gpu-box-1", URL: "https://10.0.0.5:7947/i/gpu-box-1", Kind: KindComfyUI, Up: true, Queue: 2, Foreign: 1,
			Running: "6b9c1f1e-0b53-4e7b-a7f2-0d8a5c2f4c11", Job: "f2a80a4e-2f0c-4b43-8a0e-7a6f4f2d9b11", Fence: 1 << 60,
			Version: "0.3.64", GPU: "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync", GPUType: "cuda",
			VRAMTotal: 25386352640, VRAMFree: 23900000000, ObjectInfo: "0123456789abcdef0123456789abcdef",
			Boot: 1795226190000, Since: 1795226195000,
		},
		{Name: "gpu-box-2", URL: "http://10.0.0.5:8189", Direct: true, Reason: "connection refused", Load: "the GPU is in use"},
	},
}

// The bytes on the wire: a hub must still read what older agents send.
func TestReportGolden(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "report-1.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, golden.Encode(), 0o600))
	}
	want := must.Get(os.ReadFile(path))(t)
	require.Equal(t, string(want), string(golden.Encode()))
	got := must.Get(DecodeReport(want))(t)
	require.Equal(t, golden, got)
}

func TestDecodeReport(t *testing.T) {
	t.Parallel()
	got, err := DecodeReport([]byte("\x01" + `{"agent": "a", "boot": 1, "seq": 2, "later": {"x": []}, "instances": [{"name": "a", "url": "u", "new": 1}]}`))
	require.NoError(t, err, "a newer agent's fields are left out")
	require.Equal(t, Report{Agent: "a", Boot: 1, Seq: 2, Instances: []InstanceReport{{Name: "a", URL: "u"}}}, got)
	for name, bad := range map[string]string{
		"empty":            "",
		"other encoding":   "\x02{}",
		"no JSON":          "\x01{",
		"no agent":         "\x01{}",
		"wrong types":      "\x01" + `{"agent": 5}`,
		"nameless":         "\x01" + `{"agent": "a", "instances": [{"url": "u"}]}`,
		"no address":       "\x01" + `{"agent": "a", "instances": [{"name": "u"}]}`,
		"path as name":     "\x01" + `{"agent": "a/b"}`,
		"long name":        "\x01" + `{"agent": "` + strings.Repeat("a", 65) + `"}`,
		"path as instance": "\x01" + `{"agent": "a", "instances": [{"name": "../b", "url": "u"}]}`,
		"named twice":      "\x01" + `{"agent": "a", "instances": [{"name": "b", "url": "u"}, {"name": "b", "url": "v"}]}`,
		"long address":     "\x01" + `{"agent": "a", "instances": [{"name": "b", "url": "` + strings.Repeat("u", maxURL+1) + `"}]}`,
		"large":            "\x01" + strings.Repeat(" ", maxReport),
		"too many to hold": "\x01" + `{"agent": "a", "instances": [` + strings.Repeat(`{"name": "u", "url": "u"},`, MaxInstances) + `{"name": "u", "url": "u"}]}`,
	} {
		_, err := DecodeReport([]byte(bad))
		require.ErrorIs(t, err, ErrReport, name)
	}
	_, err = DecodeReport(Report{Agent: "a", Instances: make([]InstanceReport, 480)}.Encode())
	require.ErrorContains(t, err, "480 instances, where one agent may have 256", "it is logged and shown")
}

// Texts are shown to people, in the log, on the dashboard and in terminals.
func TestTextsOfReportsAreBounded(t *testing.T) {
	t.Parallel()
	long := golden
	long.Instances = []InstanceReport{{
		Name: "a", URL: "u", Reason: strings.Repeat("é", maxText), GPU: "a\x1b[31m\nb", Queue: -5, Foreign: 1 << 40, VRAMFree: -1,
	}}
	got := must.Get(DecodeReport(long.Encode()))(t)
	i := got.Instances[0]
	require.Equal(t, strings.Repeat("é", maxText/2), i.Reason)
	require.Equal(t, "a [31m b", i.GPU)
	require.Zero(t, i.Queue)
	require.Equal(t, maxCount, i.Foreign)
	require.Zero(t, i.VRAMFree)
}

func FuzzDecodeReport(f *testing.F) {
	f.Add(golden.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeReport(data)
		if err != nil {
			return
		}
		again := must.Get(DecodeReport(r.Encode()))(t)
		require.Equal(t, r.Encode(), again.Encode())
		require.NoError(t, CheckName(r.Agent))
		require.LessOrEqual(t, len(r.Instances), MaxInstances)
		for _, i := range r.Instances {
			require.Regexp(t, instanceName, i.Name)
			require.LessOrEqual(t, len(i.URL), maxURL)
			for _, text := range []string{i.Kind, i.Reason, i.Running, i.Job, i.Load, i.Version, i.GPU, i.GPUType, i.ObjectInfo} {
				require.LessOrEqual(t, len(text), maxText)
			}
		}
		Policy{}.Restrict(r)
		registry := NewRegistry()
		_ = registry.Apply(r) // must not panic, whatever it says
		registry.Instances()
	})
}

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
	beside.Bubble(t, func(t *testing.T) {
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
	beside.Bubble(t, func(t *testing.T) {
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
		require.Contains(t, i.Reason, "its agent is gone without a word")

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
		"tunnel://attic/i/attic":          true,
		"tunnel://attic/i/attic-2":        false,
		"tunnel://attic/restart/attic":    false,
		"tunnel://user:x@attic/i/attic":   false,
		"tunnel://attic/i/attic?x=1":      false,
		"http://127.0.0.1:2019/i/attic":   false,
		"http://10.0.0.5:8188/i/attic":    false,
		"https://169.254.169.254/i/attic": false,
		"file:///i/attic":                 false,
		"tunnel://attic/i/%61ttic":        false,
		"tunnel://attic:0/../i/attic":     false,
		"TUNNEL://attic/i/attic":          true, // a scheme has no case
		"tunnel://attic/i/attic#fragment": false,
		"tunnel://[fd00::1]:8188/i/attic": true, // the host means nothing
	} {
		_, faults := p.Restrict(Report{Agent: "attic", Instances: []InstanceReport{{Name: "attic", URL: url}}, Sender: Sender{Tunnel: true}})
		require.Equal(t, allowed, len(faults) == 0, url)
	}
	_, faults := p.Restrict(Report{Agent: "attic", Instances: []InstanceReport{{Name: "attic", URL: "tunnel://attic/i/attic", Direct: true}}, Sender: Sender{Tunnel: true}})
	require.NotEmpty(t, faults, "a direct address is none in the tunnel")
}

// A machine with a token has no other names than its own.
func TestNamesInATunnel(t *testing.T) {
	t.Parallel()
	p := Policy{Prefix: "/i/"}
	for name, own := range map[string]bool{
		"gpu7": true, "gpu7-1": true, "gpu7-8188": true, "gpu7-left": true,
		"gpu70": false, "gpu7.1": false, "gpu7_1": false, "gpu": false, "attic": false, "x-gpu7": false, "GPU7": false,
	} {
		r := report("gpu7", "gpu7", 1, 1, "gpu7", name)
		if name == "gpu7" {
			r.Instances = r.Instances[:1]
		}
		for n := range r.Instances {
			r.Instances[n].URL = "tunnel://gpu7/i/" + r.Instances[n].Name
		}
		gossip, faults := Policy{Prefix: "/i/", Hosts: []string{"gpu7"}}.Restrict(report("gpu7", "gpu7", 1, 1, name))
		require.Empty(t, faults, "an agent with a key owns what it has first")
		require.Len(t, gossip.Instances, 1)

		r.Sender.Tunnel = true
		allowed, faults := p.Restrict(r)
		if own {
			require.Empty(t, faults, name)
			require.Equal(t, r.Instances, allowed.Instances)
			continue
		}
		require.Equal(t, map[string]string{name: "its machine's token admits only the names gpu7 and gpu7-..."}, faults)
		require.Equal(t, r.Instances[:1], allowed.Instances, "the name stays free for whose it is")
		require.Equal(t, name, r.Instances[1].Name, "the report itself is as it was")
	}
}
