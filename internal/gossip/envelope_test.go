package gossip

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

func described(id Identity) meta {
	return meta{Role: RoleAgent, Name: "box", Boot: 5, Version: "v1", Protocol: protocolSigned, Addr: "10.0.0.5:7946"}.sign(id)
}

// ear is a hub that hears what it is sent.
func hubThatHears(key string) (g *Gossip, heard *[]fleet.Report, refused *[]error) {
	heard, refused = new([]fleet.Report), new([]error)
	g = &Gossip{
		log: slog.New(slog.DiscardHandler), gone: map[process]time.Time{}, ended: map[process]time.Time{},
		config: Config{
			Role: RoleHub, Key: key,
			OnReport:  func(r fleet.Report) { *heard = append(*heard, r) },
			OnRefused: func(_ string, _ int64, err error) { *refused = append(*refused, err) },
		},
	}
	return g, heard, refused
}

func TestOnlyWhatAnAgentSignsIsHeard(t *testing.T) {
	t.Parallel()
	id, thief := NewIdentity(), NewIdentity()
	report := fleet.Report{Agent: "box", Boot: 5, Seq: 1, Instances: []fleet.InstanceReport{{Name: "box", URL: "https://10.0.0.5:7947/i/box"}}}
	sealed := id.seal(messageSignedReport, described(id).encode(), report.Encode())
	of := func(agent string, boot int64) []byte {
		r := report
		r.Agent, r.Boot = agent, boot
		return r.Encode()
	}
	changed := func(change func(*meta)) []byte {
		m := described(id)
		change(&m)
		return thief.seal(messageSignedReport, m.encode(), report.Encode())
	}
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-3] ^= 1
	asLeave := bytes.Clone(sealed)
	asLeave[0] = messageSignedLeave
	hubs := described(id)
	hubs.Role = RoleHub
	for name, c := range map[string]struct {
		message []byte
		want    error // nil: heard
	}{
		"its own":                       {sealed, nil},
		"changed on its way":            {flipped, ErrForged},
		"cut off":                       {sealed[:100], ErrForged},
		"cut off early":                 {sealed[:2], ErrForged},
		"signed by another":             {thief.seal(messageSignedReport, described(id).encode(), report.Encode()), ErrForged},
		"in another's name":             {thief.seal(messageSignedReport, described(thief).encode(), of("victim", 5)), ErrForged},
		"of another boot":               {id.seal(messageSignedReport, described(id).encode(), of("box", 6)), ErrForged},
		"another's name in description": {changed(func(m *meta) { m.Name = "victim" }), ErrForged},
		"another address":               {changed(func(m *meta) { m.Addr = "10.0.0.6:7946" }), ErrForged},
		"another boot":                  {changed(func(m *meta) { m.Boot = 6 }), ErrForged},
		"another key":                   {changed(func(m *meta) { m.Key = thief.Key() }), ErrForged},
		"no key":                        {changed(func(m *meta) { m.Key, m.Signature = "", "" }), ErrUnsigned},
		"of a hub":                      {id.seal(messageSignedReport, hubs.sign(id).encode(), report.Encode()), ErrForged},
		"no address":                    {id.seal(messageSignedReport, meta{Role: RoleAgent, Name: "box", Boot: 5}.sign(id).encode(), report.Encode()), fleet.ErrReport},
		"no report":                     {id.seal(messageSignedReport, described(id).encode(), []byte("x")), fleet.ErrReport},
		"a report as leave message":     {asLeave, ErrForged},
		"unsigned":                      {append([]byte{messageReport}, report.Encode()...), ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, heard, refused := hubThatHears("the gossip key")
			g.message(c.message)
			if c.want == nil {
				require.Len(t, *heard, 1)
				require.Equal(t, id.Key(), (*heard)[0].Sender.Key)
				require.Equal(t, "10.0.0.5", (*heard)[0].Sender.Addr.String())
				require.Empty(t, *refused)
				return
			}
			require.Empty(t, *heard)
			require.Empty(t, g.ended)
			require.Len(t, *refused, 1)
			require.ErrorIs(t, (*refused)[0], c.want)
		})
	}
	// Whoever is proven to have sent what cannot be used is told why.
	g, heard, _ := hubThatHears("")
	var told []int64
	g.config.OnRefused = func(_ string, boot int64, _ error) { told = append(told, boot) }
	full := fleet.Report{Agent: "box", Boot: 5, Instances: make([]fleet.InstanceReport, fleet.MaxInstances+1)}
	g.message(id.seal(messageSignedReport, described(id).encode(), full.Encode()))
	g.message(flipped)
	require.Equal(t, []int64{5, 0}, told)

	g.message(append([]byte{messageReport}, report.Encode()...))
	require.Len(t, *heard, 1, "a group without a key is this machine's: older agents may go on there")
}

// Nobody describes another member: neither its key nor its address.
func TestDescriptionsAreTheMembersOwn(t *testing.T) {
	t.Parallel()
	id, thief := NewIdentity(), NewIdentity()
	d := &delegate{self: "hub/h/1"}
	node := func(name string, m meta) *memberlist.Node {
		return &memberlist.Node{Name: name, Addr: []byte{10, 0, 0, 5}, Port: 7946, Meta: m.encode()}
	}
	own := described(id)
	require.NoError(t, d.NotifyAlive(node(own.node(), own)))
	require.NoError(t, d.NotifyAlive(node("hub/h/2", meta{Role: RoleHub, Name: "h", Boot: 2})))
	require.NoError(t, d.NotifyAlive(&memberlist.Node{Name: d.self}), "itself, before it knows its address")
	require.ErrorIs(t, d.NotifyAlive(node("agent/victim/5", own)), ErrForged)
	moved := node(own.node(), own)
	moved.Addr = []byte{10, 0, 0, 6}
	require.ErrorIs(t, d.NotifyAlive(moved), ErrForged)
	renamed := own
	renamed.Name = "victim"
	require.ErrorIs(t, d.NotifyAlive(node(renamed.node(), renamed)), ErrForged)
	rekeyed := own
	rekeyed.Key = thief.Key()
	require.ErrorIs(t, d.NotifyAlive(node(own.node(), rekeyed)), ErrForged)
}

// A refused agent says so where its operator looks.
func TestRefusalReachesTheAgent(t *testing.T) {
	t.Parallel()
	hub := enter(t, RoleHub, "hub", nil)
	var log logtest.Log
	a := enter(t, RoleAgent, "a", func(c *Config) {
		c.Join, c.Logger = []string{hub.bind}, slog.New(slog.NewTextHandler(&log, nil))
	})
	eventually(t, "in", func() bool { return hub.saw("a", false) })
	hub.Refuse("a", a.boot+1, "another process")
	hub.Refuse("b", a.boot, "another agent")
	eventually(t, "told", func() bool {
		hub.Refuse("a", a.boot, "the name has another key\nand so on")
		return bytes.Contains([]byte(log.String()), []byte(`a hub refuses this agent`))
	})
	require.NotContains(t, log.String(), "another process")
	require.Contains(t, log.String(), `reason="the name has another key\nand so on"`)
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("refuses")), "at most once a minute")
}

// An agent that is upgraded first goes on at a hub that knows no signatures.
func TestOlderHubsGetWhatTheyKnow(t *testing.T) {
	t.Parallel()
	id := NewIdentity()
	seq := uint64(0)
	g := &Gossip{meta: described(id), config: Config{Identity: id, Report: func() fleet.Report {
		seq++
		return fleet.Report{Agent: "box", Boot: 5, Seq: seq}
	}}}
	older := &memberlist.Node{Meta: []byte("\x01" + `{"r":"hub","n":"h","b":1}`)}
	message := g.reportFor(protocolOf(older))
	require.Equal(t, messageReport, message[0])
	r := must(fleet.DecodeReport(message[1:]))
	require.Equal(t, "box", r.Agent)
	newer := &memberlist.Node{Meta: meta{Role: RoleHub, Name: "h", Protocol: protocolSigned}.encode()}
	require.Equal(t, messageSignedReport, g.reportFor(protocolOf(newer))[0])
}

func FuzzUnseal(f *testing.F) {
	id := NewIdentity()
	f.Add(id.seal(messageSignedReport, described(id).encode(), []byte("x")))
	f.Add([]byte{messageSignedLeave, 0, 0})
	f.Add(append([]byte{messageReport}, fleet.Report{Agent: "a"}.Encode()...))
	f.Add([]byte("\x05{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 {
			return // the delegate leaves these out
		}
		g, _, _ := hubThatHears("key")
		g.message(data) // must not fall over whatever it is sent
		if from, body, err := unseal(data, &proven{}); err == nil {
			require.NoError(t, from.verify())
			require.LessOrEqual(t, len(body), len(data))
		}
	})
}

// A description that was proven once proves nothing about a message: whoever has seen
// it can send it.
func TestProvenDescription(t *testing.T) {
	t.Parallel()
	id, thief := NewIdentity(), NewIdentity()
	report := fleet.Report{Agent: "box", Boot: 5}.Encode()
	var known proven
	for range 2 {
		_, body, err := unseal(id.seal(messageSignedReport, described(id).encode(), report), &known)
		require.NoError(t, err)
		require.Equal(t, report, body)
		require.Len(t, known, 1)
		_, _, err = unseal(thief.seal(messageSignedReport, described(id).encode(), report), &known)
		require.ErrorIs(t, err, ErrForged)
	}
	for n := range maxProven {
		m := described(id)
		m.Boot = int64(n)
		must(known.of(m.sign(id).encode()))
		require.LessOrEqual(t, len(known), maxProven)
	}
	forged := described(id)
	forged.Name = "victim"
	require.ErrorIs(t, errOf(known.of(forged.encode())), ErrForged)
}
