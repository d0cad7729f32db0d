package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// testMember is a member under test and everything it has heard.
type testMember struct {
	*Gossip
	bind string
	name string
	boot int64
	gone sync.Once

	mu      sync.Mutex
	events  []Event
	reports []fleet.Report
	seq     uint64
	queue   int
}

func (p *testMember) setQueue(n int) {
	p.mu.Lock()
	p.queue = n
	p.mu.Unlock()
	p.Push(true)
}

func (p *testMember) report() fleet.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	return fleet.Report{Agent: p.name, Boot: p.boot, Seq: p.seq, Instances: []fleet.InstanceReport{{Name: "a", URL: "http://a", Up: true, Queue: p.queue}}}
}

func (p *testMember) heard() []fleet.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]fleet.Report(nil), p.reports...)
}

func (p *testMember) saw(name string, left bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.Member.Name == name && e.Left == left {
			return true
		}
	}
	return false
}

// names returns the names of the other members, ghosts included.
func (p *testMember) names() []string {
	var list []string
	for _, m := range p.Members() {
		list = append(list, m.Name)
	}
	slices.Sort(list)
	return list
}

// quick makes members notice deaths soon.
func quick(m *memberlist.Config) {
	m.ProbeInterval, m.ProbeTimeout = 200*time.Millisecond, 150*time.Millisecond
	m.GossipInterval = 10 * time.Millisecond
}

// enter joins the group until the test ends; change may alter the configuration.
func enter(t *testing.T, role Role, name string, change func(*Config)) *testMember {
	p := &testMember{name: name, boot: time.Now().UnixMilli()}
	c := Config{
		Role: role, Name: name, Boot: p.boot, Bind: "127.0.0.1:0", Key: "a key that is long enough", tune: quick,
		OnMember: func(e Event) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, e)
		},
		OnReport: func(r fleet.Report) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reports = append(p.reports, r)
		},
	}
	if role == RoleAgent {
		c.Report = p.report
	}
	if change != nil {
		change(&c)
	}
	g := must(Join(t.Context(), c))
	p.Gossip, p.bind = g, g.Local().Addr
	t.Cleanup(func() { leave(p) })
	return p
}

func leave(p *testMember) {
	p.gone.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.Leave(ctx) // nobody may be left to hear it
	})
}

func joining(addresses ...string) func(*Config) { return func(c *Config) { c.Join = addresses } }

func eventually(t *testing.T, what string, ok func() bool) {
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond, what)
}

func TestReportsReachEveryHub(t *testing.T) {
	t.Parallel()
	one := enter(t, RoleHub, "one", nil)
	two := enter(t, RoleHub, "two", joining(one.bind))
	a := enter(t, RoleAgent, "a", joining(one.bind))
	eventually(t, "everybody knows everybody", func() bool {
		return len(one.Members()) == 2 && len(two.Members()) == 2 && len(a.Members()) == 2
	})
	a.setQueue(7)
	for _, hub := range []*testMember{one, two} {
		eventually(t, "the newest report", func() bool {
			for _, r := range hub.heard() {
				if r.Instances[0].Queue == 7 {
					return true
				}
			}
			return false
		})
		require.True(t, hub.saw("a", false))
	}
	require.Empty(t, a.heard(), "agents get no reports")
	leave(a)
	eventually(t, "an announced leave needs no suspicion", func() bool { return one.saw("a", true) && two.saw("a", true) })
}

// A report that arrives after its sender's leave message must not bring the sender
// back; one from a member that was merely believed dead must.
func TestLateReports(t *testing.T) {
	t.Parallel()
	var heard []fleet.Report
	g := &Gossip{
		log: slog.New(slog.DiscardHandler), gone: map[process]time.Time{}, ended: map[process]time.Time{},
		config: Config{OnReport: func(r fleet.Report) { heard = append(heard, r) }},
	}
	report := fleet.Report{Agent: "a", Boot: 5, Seq: 1}
	id, thief := NewIdentity(), NewIdentity()
	send := func(i Identity, kind byte, boot int64) {
		m := meta{Role: RoleAgent, Name: "a", Boot: boot, Addr: "10.0.0.5:7946"}.sign(i)
		var body []byte
		if kind == messageSignedReport {
			report.Boot = boot
			body = report.Encode()
		}
		g.message(i.seal(kind, m.encode(), body))
	}
	g.event(Event{Member: Member{Role: RoleAgent, Name: "a", Boot: 5, Key: id.Key()}, Left: true})
	send(id, messageSignedReport, 5)
	require.Len(t, heard, 1)
	require.Equal(t, fleet.Sender{Key: id.Key(), Addr: netip.MustParseAddr("10.0.0.5")}, heard[0].Sender)
	send(thief, messageSignedLeave, 5)
	g.message(append([]byte{messageLeave}, meta{Role: RoleAgent, Name: "a", Boot: 5}.encode()...))
	send(id, messageSignedReport, 5)
	require.Len(t, heard, 2, "a leave message in another's name")
	send(id, messageSignedLeave, 5)
	send(id, messageSignedReport, 5)
	require.Len(t, heard, 2)
	send(id, messageSignedReport, 6)
	require.Len(t, heard, 3, "the next life of the same agent")
	g.message([]byte("nonsense"))
	require.Len(t, heard, 3)
}

func TestWrongKey(t *testing.T) {
	t.Parallel()
	hub := enter(t, RoleHub, "hub", nil)
	var log logtest.Log
	stranger := enter(t, RoleAgent, "stranger", func(c *Config) {
		c.Join, c.Key, c.Logger = []string{hub.bind}, "another key, also long", slog.New(slog.NewTextHandler(&log, nil))
	})
	enter(t, RoleAgent, "friend", joining(hub.bind))
	eventually(t, "the stranger is told", func() bool { return strings.Contains(log.String(), "is the gossip key the same on both sides?") })
	eventually(t, "the friend is in", func() bool { return hub.saw("friend", false) })
	require.False(t, hub.saw("stranger", false))
	require.Empty(t, stranger.Members())
	for _, r := range hub.heard() {
		require.NotEqual(t, "stranger", r.Agent)
	}
}

func TestJoinRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		want   error
	}{
		"open group":        {Config{Role: RoleHub, Name: "h", Bind: ":0"}, ErrKeyRequired},
		"blank lines":       {Config{Role: RoleHub, Name: "h", Bind: ":0", Key: " \n\n"}, ErrKeyRequired},
		"open to a network": {Config{Role: RoleHub, Name: "h", Bind: "10.1.2.3:0"}, ErrKeyRequired},
		"no name":           {Config{Role: RoleHub, Bind: "127.0.0.1:0"}, ErrName},
		"path as name":      {Config{Role: RoleHub, Name: "a/b", Bind: "127.0.0.1:0"}, ErrName},
		"long name":         {Config{Role: RoleHub, Name: strings.Repeat("a", 65), Bind: "127.0.0.1:0"}, ErrName},
	} {
		require.ErrorIs(t, errOf(Join(t.Context(), c.config)), c.want, name)
	}
	require.Error(t, errOf(Join(t.Context(), Config{Role: RoleHub, Name: "h", Bind: "127.0.0.1:x"})))

	taken := must(net.Listen("tcp", "127.0.0.1:0"))
	defer taken.Close()
	require.ErrorContains(t, errOf(Join(t.Context(), Config{Role: RoleHub, Name: "h", Bind: taken.Addr().String()})), "address already in use")
}

// A hub that hangs must not delay reports to the others, and gets only the newest
// when it recovers.
func TestSendersCoalesce(t *testing.T) {
	t.Parallel()
	release, sent := make(chan struct{}), make(chan string, 100)
	s := newSenders(func(n *memberlist.Node) {
		if n.Name == "slow" {
			<-release
		}
		sent <- n.Name
	})
	slow, fast := &memberlist.Node{Name: "slow"}, &memberlist.Node{Name: "fast"}
	for range 50 {
		s.wake(slow)
	}
	s.wake(fast)
	require.Equal(t, "fast", <-sent)
	close(release)
	require.Equal(t, "slow", <-sent)
	require.Equal(t, "slow", <-sent)
	s.close()
	require.Empty(t, sent, "fifty wake-ups, two deliveries")
	s.wake(slow)
	s.close()
	require.Empty(t, sent, "nothing after the end")
}

// A machine whose prompts take milliseconds does not open connections for each.
func TestSendersPause(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var sent []time.Duration
		begin := time.Now()
		s := newSenders(func(*memberlist.Node) { sent = append(sent, time.Since(begin)) })
		hub := &memberlist.Node{Name: "hub"}
		for range 30 {
			s.wake(hub)
			<-time.After(sendPause / 10)
		}
		<-time.After(sendPause)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, sendPause, 2 * sendPause, 3 * sendPause}, sent, "the last change is told, too")
		s.wake(hub)
		synctest.Wait()
		require.Len(t, sent, 5, "at once after a quiet time")
		s.close()
		require.Equal(t, 4*sendPause, time.Since(begin), "close does not wait for a pause")
	})
}

func TestInboxKeepsTheNewest(t *testing.T) {
	t.Parallel()
	b := newInbox()
	for n := range maxInbox + 5 {
		b.message([]byte(fmt.Sprint(n)))
	}
	b.event(Event{Left: true})
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	b.run(ctx, func(Event) { got = append(got, "event") }, func(r []byte) { got = append(got, string(r)) },
		func(n int) { got = append(got, fmt.Sprintf("dropped %d", n)); cancel() })
	require.Equal(t, []string{"event", "5"}, got[:2])
	require.Equal(t, []string{fmt.Sprint(maxInbox + 4), "dropped 5"}, got[len(got)-2:])
}

func TestLog(t *testing.T) {
	t.Parallel()
	var out logtest.Log
	l := newLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	l.Printf("[DEBUG] memberlist: Stream connection from=127.0.0.1:5")
	require.Empty(t, out.String())
	for port := range 100 {
		l.Printf("[ERR] memberlist: Decrypt packet failed: No installed keys could decrypt the message from=10.0.0.7:%d", port)
	}
	require.Equal(t, 1, strings.Count(out.String(), "another gossip key"), "a stranger cannot fill the log")
	l.Printf("[WARN] memberlist: Refuting a suspect message")
	require.Contains(t, out.String(), `level=INFO msg="Refuting a suspect message"`)
}

func TestHubSaysThatItIsCutOff(t *testing.T) {
	t.Parallel()
	one := enter(t, RoleHub, "one", nil)
	two := enter(t, RoleHub, "two", joining(one.bind))
	says := func(cut bool) func() bool {
		return func() bool {
			others := two.Members()
			return len(others) == 1 && others[0].CutOff == cut
		}
	}
	eventually(t, "it says nothing", says(false))
	one.SetCutOff(true)
	eventually(t, "it is cut off", says(true))
	one.SetCutOff(false)
	eventually(t, "it is not", says(false))
}
