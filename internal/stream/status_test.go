package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestFirstMessageIsStatusWithSID(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.setCount("me", 3)
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(`{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 3}}, "sid": "me"}}`), p.settled())
		r.streams.Statuses.Changed("me")
		require.Equal(t, words(`{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 3}}}}`), p.settled(),
			"only the first has a sid")
		require.Equal(t, 1, r.streams.Sockets.Count())
		for _, path := range []string{"/ws", "/ws?clientId="} {
			require.Regexp(t, `"sid": "[0-9a-f]{32}"}}$`, r.open(path).settled()[0])
		}
	})
}

func TestStatusIsCoalesced(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		for i := range 1000 {
			r.setCount("me", i)
			r.streams.Statuses.Changed("me", "unknown")
			time.Sleep(tick)
		}
		time.Sleep(time.Second)
		got := p.settled()
		require.Len(t, got, 11, "about ten a second")
		require.Equal(t, status(999), got[10], "the last one is right")
		// The status at the end of the client's own prompt is not delayed.
		for i := range 5 {
			r.setCount("me", 10-i)
			r.run("me", fmt.Sprint(i)).End()
			require.Equal(t, words(start(fmt.Sprint(i)), status(10-i), null(fmt.Sprint(i))), p.settled())
		}
		// It replaces one that is due.
		r.run("me", "x").End()
		r.streams.Statuses.Changed("me")
		r.run("me", "y").End()
		time.Sleep(time.Second)
		require.Len(t, p.settled(), 6)
	})
}

func TestStatusIsNeverHeld(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		r.run("me", "a")
		r.run("me", "b").End()
		require.Equal(t, words(start("a")), p.settled(), "b is held")
		r.setCount("me", 1)
		r.streams.Statuses.Changed()
		require.Equal(t, words(status(1)), p.settled())
	})
}

func TestKeepAlive(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		var pings int
		browser := r.dial("/ws?clientId=web", &websocket.DialOptions{
			HTTPHeader:     http.Header{"Origin": {"http://127.0.0.1"}},
			OnPingReceived: func(context.Context, []byte) bool { pings++; return true },
		})
		browser.read()
		p.settled()
		browser.settled()
		r.setCount("me", 2)
		time.Sleep(9*time.Second - tick)
		require.Empty(t, p.settled())
		time.Sleep(2 * tick)
		require.Equal(t, words(status(2)), p.settled(), "and the number is requested again")
		time.Sleep(27 * time.Second)
		require.Len(t, p.settled(), 3)
		require.Empty(t, browser.settled())
		require.Equal(t, 4, pings)
	})
}

func TestCountCannotBeHad(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.setCount("me", 4)
		p := r.open("/ws?clientId=me")
		p.settled()
		r.mu.Lock()
		r.fail = errors.New("away")
		r.mu.Unlock()
		r.streams.Statuses.Changed("me")
		require.Empty(t, p.settled(), "no number, no message")
		r.run("me", "a").End()
		require.Equal(t, words(start("a"), status(4), null("a")), p.settled(), "but an end is never held up")
	})
}

func TestCountIsSharedByTheSocketsOfACaller(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Caller = "tenant"
		var peers []*peer
		for i := range 20 {
			peers = append(peers, r.open(fmt.Sprint("/ws?clientId=", i)))
		}
		synctest.Wait()
		asked := r.asked
		r.setCount("tenant", 5)
		r.streams.Statuses.Changed("tenant")
		for i, p := range peers {
			require.Equal(t, words(hello(0, fmt.Sprint(i)), status(5)), p.settled())
		}
		require.Equal(t, 1, r.asked-asked)
	})
}

// A status has the current number, so it must not overtake what was queued before
// the job ended: clients that read 0 leave.
func TestStatusComesAfterWhatIsQueued(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.dial("/ws?clientId=me", nil) // reads nothing yet, so the writer is blocked
		a := r.run("me", "a")
		a.Send(other(executed("a")))
		synctest.Wait()
		r.streams.Statuses.Changed("me") // the queue reports that the job has ended
		time.Sleep(time.Second)
		p.read()
		time.Sleep(time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), executed("a"), status(0)), p.settled())
	})
}

// The end of a job tells how many jobs its caller has left, so that no socket asks.
func TestEndTellsTheCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// between happens while the end is written.
		between func(r *rig)
		asks    bool
	}{
		"nothing else happens":                    {func(*rig) {}, false},
		"the hint of the end comes":               {func(r *rig) { r.streams.Statuses.JobMoved("tenant", "me") }, false},
		"another job is queued":                   {func(r *rig) { r.setCount("me", 7); r.streams.Statuses.JobChanged("tenant", "me") }, true},
		"somebody says that all may have changed": {func(r *rig) { r.setCount("me", 0); r.streams.Statuses.Changed() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, r *rig) {
				r.ident.Caller = "me"
				r.setCount("me", 5)
				p, other := r.open("/ws?clientId=me"), r.open("/ws?clientId=tab")
				run := r.run("me", "a")
				r.streams.Statuses.JobChanged("tenant", "me")
				time.Sleep(time.Second)
				p.settled()
				other.settled()
				r.mu.Lock()
				asked := r.asked
				r.mu.Unlock()

				counting := r.streams.Statuses.Counting("me")
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
		counting := r.streams.Statuses.Counting("me")
		p := r.open("/ws?clientId=me")
		synctest.Wait()
		p.settled()
		r.setCount("me", 4)
		r.streams.Statuses.JobMoved("tenant", "me")
		counting.Counted(4)
		counting.Tell()
		time.Sleep(time.Second)
		got := p.settled()
		require.Equal(t, status(4), got[len(got)-1])
	})
}

// A number that arrives while another is being asked for is not taken for the newer one.
func TestCountIsAskedAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Caller = "me"
		r.setCount("me", 2)
		p := r.open("/ws?clientId=me")
		p.settled()
		// Two ends at the same time, whose replies arrive in the wrong order.
		first, second := r.streams.Statuses.Counting("me"), r.streams.Statuses.Counting("me")
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

// Web UIs list the jobs of the whole tenant, and fetch the list again at each
// status.
func TestEverySocketOfATenantHearsOfAChange(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Tenant = "house"
		ann, bob := r.open("/ws?clientId=ann"), r.open("/ws?clientId=bob")
		web := r.dial("/ws?clientId=web", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://127.0.0.1"}}})
		web.read()
		r.ident.Tenant = "elsewhere"
		other := r.open("/ws?clientId=other")
		for _, p := range []*peer{ann, bob, web, other} {
			p.settled()
		}
		r.setCount("ann", 1)
		asked := r.asked
		r.streams.Statuses.JobChanged("house", "ann")
		require.Equal(t, words(status(1)), ann.settled(), "once")
		require.Equal(t, words(status(0)), bob.settled(), "and each is told its own number")
		require.Equal(t, words(status(0)), web.settled(), "browsers as well")
		time.Sleep(5 * time.Second)
		require.Empty(t, ann.settled())
		require.Empty(t, bob.settled())
		require.Empty(t, other.settled(), "it is nobody else's business")
		require.Equal(t, 1, r.asked-asked, "only the number that may have changed is asked for")

		r.streams.Statuses.JobChanged("", "") // events were missed
		for _, p := range []*peer{ann, bob, web, other} {
			require.Len(t, p.settled(), 1)
		}
	})
}

// However many sockets a tenant has, and however much happens, only a limited
// number is told per second, each in turn. All are told of the last change.
func TestManySocketsOfATenantAreToldInTurns(t *testing.T) {
	bubble(t, Options{TenantStatuses: 50}, func(t *testing.T, r *rig) {
		r.ident.Tenant = "house"
		const sockets = 200
		peers := make([]*peer, sockets)
		for n := range peers {
			peers[n] = r.open(fmt.Sprint("/ws?clientId=", n))
		}
		synctest.Wait()
		for _, p := range peers {
			p.settled()
		}
		heard := func() (all, most, least int) {
			least = 1 << 30
			for _, p := range peers {
				n := len(p.settled())
				all, most, least = all+n, max(most, n), min(least, n)
			}
			return all, most, least
		}
		// A change every 20 ms for 8 s: each socket has two turns.
		for range 400 {
			r.streams.Statuses.JobChanged("house", "somebody")
			time.Sleep(20 * time.Millisecond)
		}
		all, most, least := heard()
		require.LessOrEqual(t, all, 8*50+5)
		require.GreaterOrEqual(t, all, 8*50-5)
		require.LessOrEqual(t, most-least, 1, "nobody is told more often than others")
		// After the last change, every socket is told once. (The keep-alive is due 9 s later.)
		r.streams.Statuses.JobChanged("house", "somebody")
		time.Sleep(4500 * time.Millisecond)
		all, _, least = heard()
		require.Equal(t, 1, least)
		require.LessOrEqual(t, all, sockets+5)
		// Nobody waits for a socket that leaves.
		r.streams.Statuses.JobChanged("house", "somebody")
		for _, p := range peers[:150] {
			require.NoError(t, p.conn.Close(websocket.StatusNormalClosure, ""))
		}
		peers = peers[150:]
		time.Sleep(2 * time.Second)
		_, _, least = heard()
		require.Equal(t, 1, least)
		r.streams.Statuses.fanout.mu.Lock()
		defer r.streams.Statuses.fanout.mu.Unlock()
		require.Equal(t, 50, r.streams.Statuses.fanout.all["house"].order.Len())
		require.Zero(t, r.streams.Statuses.fanout.all["house"].behind)
	})
}

// The bookkeeping of a tenant ends with its last socket.
func TestFanoutLeavesNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Tenant = "house"
		p := r.open("/ws?clientId=ann")
		p.settled()
		r.streams.Statuses.JobChanged("house", "")
		r.streams.Statuses.JobChanged("nobody", "")
		require.NoError(t, p.conn.Close(websocket.StatusNormalClosure, ""))
		synctest.Wait()
		require.NoError(t, r.streams.Close(context.Background()))
		require.Empty(t, r.streams.Statuses.fanout.all)
	})
}

// A note is for people: web UIs show it, and scripts never see it.
func TestNotesAreForWebUIs(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		browser := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://127.0.0.1"}}}
		for name, c := range map[string]struct {
			dial    *websocket.DialOptions
			flags   bool
			arrives bool
		}{
			"web":    {browser, true, true},
			"page":   {browser, false, false},
			"script": {nil, true, false},
			"plain":  {nil, false, false},
		} {
			p := r.dial("/ws?clientId="+name, c.dial)
			p.read()
			if c.flags {
				p.announce()
			}
			p.settled()
			run := r.run(name, "a")
			run.Send(Message{Kind: Note, Node: "3", Binary: true, Data: []byte("note")})
			run.End()
			time.Sleep(time.Second)
			want := words(start("a"), status(0), null("a"))
			if c.arrives {
				want = words(start("a"), "binary:note", status(0), null("a"))
			}
			require.Equal(t, want, p.settled(), name)
		}
	})
}
