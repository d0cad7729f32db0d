package stream

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

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
		r.streams.JobChanged("house", "ann")
		require.Equal(t, words(status(1)), ann.settled(), "once")
		require.Equal(t, words(status(0)), bob.settled(), "and each is told its own number")
		require.Equal(t, words(status(0)), web.settled(), "browsers as well")
		time.Sleep(5 * time.Second)
		require.Empty(t, ann.settled())
		require.Empty(t, bob.settled())
		require.Empty(t, other.settled(), "it is nobody else's business")
		require.Equal(t, 1, r.asked-asked, "only the number that may have changed is asked for")

		r.streams.JobChanged("", "") // events were missed
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
			r.streams.JobChanged("house", "somebody")
			time.Sleep(20 * time.Millisecond)
		}
		all, most, least := heard()
		require.LessOrEqual(t, all, 8*50+5)
		require.GreaterOrEqual(t, all, 8*50-5)
		require.LessOrEqual(t, most-least, 1, "nobody is told more often than others")
		// After the last change, every socket is told once. (The keep-alive is due
		// 9 s later.)
		r.streams.JobChanged("house", "somebody")
		time.Sleep(4500 * time.Millisecond)
		all, _, least = heard()
		require.Equal(t, 1, least)
		require.LessOrEqual(t, all, sockets+5)
		// A socket that leaves is not waited for.
		r.streams.JobChanged("house", "somebody")
		for _, p := range peers[:150] {
			require.NoError(t, p.conn.Close(websocket.StatusNormalClosure, ""))
		}
		peers = peers[150:]
		time.Sleep(2 * time.Second)
		_, _, least = heard()
		require.Equal(t, 1, least)
		r.streams.fanout.mu.Lock()
		defer r.streams.fanout.mu.Unlock()
		require.Equal(t, 50, r.streams.fanout.all["house"].order.Len())
		require.Zero(t, r.streams.fanout.all["house"].behind)
	})
}

// The bookkeeping of a tenant ends with its last socket.
func TestFanoutLeavesNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Tenant = "house"
		p := r.open("/ws?clientId=ann")
		p.settled()
		r.streams.JobChanged("house", "")
		r.streams.JobChanged("nobody", "")
		require.NoError(t, p.conn.Close(websocket.StatusNormalClosure, ""))
		synctest.Wait()
		require.NoError(t, r.streams.Close(context.Background()))
		require.Empty(t, r.streams.fanout.all)
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
