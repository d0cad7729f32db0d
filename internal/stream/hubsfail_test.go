package stream

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestHubDies(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		p := b.open("/ws?clientId=me")
		run := a.job("me", "1", 1)
		synctest.Wait()
		own := b.job("me", "2", 1)
		require.Equal(t, words(hello(0, "me"), start("1")), p.settled())
		x.hubs["a"].sever(true)
		time.Sleep(2 * heartbeatInterval)
		require.Equal(t, words(start("2")), p.settled(), "the stream does not stand still")
		// Another hub has taken over the run and starts it again.
		again := b.job("me", "1", 2)
		own.End(other(success("2")))
		require.Equal(t, words(success("2"), status(0), null("2"), start("1")), p.settled())
		again.End(other(success("1")))
		require.Equal(t, words(success("1"), status(0), null("1")), p.settled())
		// The dead hub was only frozen, and does not know.
		x.hubs["a"].sever(false)
		run.Send(other("late"))
		time.Sleep(3 * heartbeatInterval)
		run.End(other(success("1")))
		time.Sleep(3 * heartbeatInterval)
		require.Empty(t, p.settled(), "a job that has ended does not begin again")
	})
}

// A client's hub freezes, and the client goes to another one, which cannot reach the other hubs at
// the time. When the frozen hub goes on, it still calls itself the owner.
func TestFormerOwnerComesBackFirst(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		p := a.open("/ws?clientId=me")
		p.settled()
		x.hubs["a"].sever(true)
		x.hubs["b"].sever(true)
		time.Sleep(time.Second)
		q := b.open("/ws?clientId=me")
		run := b.job("me", "1", 1)
		require.Equal(t, words(hello(0, "me"), start("1")), q.settled())
		x.hubs["a"].sever(false)
		x.hubs["b"].sever(false)
		b.streams.ownership.claimed(Key{Client: "me"}, Owner{Hub: "a", Number: x.owners[Key{Client: "me"}].Number})
		run.End(other(success("1")))
		require.Equal(t, words(success("1"), status(0), null("1")), q.settled())
		time.Sleep(3 * heartbeatInterval)
		require.Empty(t, p.settled())
		require.Empty(t, q.settled())
		nothingKept(t, a, b)
	})
}

// A client comes back to a hub that has missed that another one owns it, and cannot say so yet.
// That it was the owner with an earlier socket does not decide about this one.
func TestBackAtAHubThatMissedTheMove(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]func(b *rig, q *peer){
		"the owner lives": func(_ *rig, q *peer) { q.leave() },
		"it has stopped":  func(b *rig, _ *peer) { require.NoError(b.t, b.streams.Close(b.t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
				c := x.rig(t, "c", Options{KeepAlive: time.Hour})
				p := a.open("/ws?clientId=me")
				p.settled()
				p.leave()
				x.hubs["a"].sever(true)
				q := b.open("/ws?clientId=me")
				run := c.job("me", "1", 1)
				require.Equal(t, words(hello(0, "me"), start("1")), q.settled())
				time.Sleep(time.Second)
				owner(b, q)
				p = a.open("/ws?clientId=me")
				require.Equal(t, words(hello(0, "me")), p.settled())
				x.hubs["a"].sever(false)
				time.Sleep(3 * heartbeatInterval)
				run.End(other(success("1")))
				require.Equal(t, words(start("1"), success("1"), status(0), null("1")), p.settled())
				nothingKept(t, a, c)
			})
		})
	}
}

// A socket that the other hubs were never told about is older than the one that the client has
// since opened at another hub.
func TestLateClaimOfAnOldSocket(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		x.hubs["a"].sever(true)
		old := a.open("/ws?clientId=me")
		old.settled()
		time.Sleep(time.Second)
		p := b.open("/ws?clientId=me")
		p.settled()
		x.hubs["a"].sever(false)
		time.Sleep(3 * heartbeatInterval)
		run := a.job("me", "1", 1)
		run.End(other(success("1")))
		require.Equal(t, words(start("1"), success("1"), status(0), null("1")), p.settled())
		require.Empty(t, old.settled())
		nothingKept(t, a, b)
	})
}

// A hub that was cut off, with a socket that the others were never told about, learns whose the client
// is now. It must not have what others sent it before sent again: they would take it for the owner.
func TestFormerOwnerAsksForNothing(t *testing.T) {
	twoHubs(t, Options{KeepAlive: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
		c := x.rig(t, "c", Options{KeepAlive: time.Hour})
		p := a.open("/ws?clientId=me")
		run := c.job("me", "1", 1)
		require.Equal(t, words(hello(0, "me"), start("1")), p.settled())
		x.hubs["a"].sever(true)
		old := a.open("/ws?clientId=me")
		old.settled()
		time.Sleep(time.Second)
		q := b.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("1")), q.settled())
		x.hubs["a"].sever(false)
		x.mu.Lock()
		x.hubs["a"].put(Notice{Kind: Resync})
		x.mu.Unlock()
		synctest.Wait()
		run.End(other(success("1")))
		require.Equal(t, words(success("1"), status(0), null("1")), q.settled())
		time.Sleep(3 * heartbeatInterval)
		require.Empty(t, old.settled())
		nothingKept(t, a, b, c)
	})
}

// A message that belongs to no run reaches the client's socket at any hub, without
// being held.
func TestPassToOtherHubs(t *testing.T) {
	twoHubs(t, Options{}, func(t *testing.T, _ *exchange, a, b *rig) {
		me := Key{Client: "me"}
		require.False(t, b.streams.Knows(t.Context(), me))
		b.streams.Pass(t.Context(), me, other("nobody's"))
		p := a.open("/ws?clientId=me")
		synctest.Wait()
		p.take()
		require.True(t, a.streams.Knows(t.Context(), me))
		require.True(t, b.streams.Knows(t.Context(), me))
		require.False(t, b.streams.Knows(t.Context(), Key{Tenant: "other", Client: "me"}))
		require.False(t, b.streams.Knows(t.Context(), Key{}))

		run := b.job("me", "a", 1)
		b.streams.Pass(t.Context(), me, other("from the other hub"))
		a.streams.Pass(t.Context(), me, Message{Binary: true, Data: []byte("from its own")})
		b.streams.Pass(t.Context(), Key{Tenant: "other", Client: "me"}, other("another tenant's"))
		b.streams.Pass(t.Context(), me, Message{Data: make([]byte, inlineBytes+1)})
		synctest.Wait()
		require.ElementsMatch(t, words(start("a"), "from the other hub", "binary:from its own"), p.take())
		run.End()
		synctest.Wait()
	})
}

// slowClaims is a transport whose claims take as long as the test says.
type slowClaims struct {
	*fakeTransport
	wait chan struct{}
}

func (c *slowClaims) Claim(ctx context.Context, wanted Ownership) (Claim, error) {
	select {
	case <-c.wait:
	case <-ctx.Done():
		return Claim{}, ctx.Err()
	}
	return c.fakeTransport.Claim(ctx, wanted)
}

// A client hears everything from the moment its socket was accepted, even while the hub is still
// asking the others to let go of the client.
func TestPassWhileTheSocketOpens(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		slow := &slowClaims{newExchange().join("a"), make(chan struct{})}
		pipe := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		r := newRig(t, Options{Transport: slow}, pipe)
		r.dialer = pipe.dial
		me := Key{Client: "me"}
		p := r.open("/ws?clientId=me")
		synctest.Wait()
		require.Len(t, p.take(), 1, "the first status")
		require.True(t, r.streams.Knows(t.Context(), me))
		r.streams.Pass(t.Context(), me, other("one"))
		r.streams.Pass(t.Context(), me, other("two"))
		r.streams.Pass(t.Context(), Key{Tenant: "other", Client: "me"}, other("another tenant's"))
		for range maxEarly {
			r.streams.Pass(t.Context(), me, Message{Data: make([]byte, maxEarlyBytes)})
		}
		close(slow.wait)
		synctest.Wait()
		r.streams.Pass(t.Context(), me, other("three"))
		synctest.Wait()
		got := p.take()
		require.Equal(t, words("one", "two", "three"), got[len(got)-3:])
		p.leave()
	})
}

// aside is what gossip tells a hub that is cut off.
type aside struct{ others, reached atomic.Bool }

func (a *aside) Reached(ok bool) { a.reached.Store(ok) }

func (a *aside) Reach() bool { return a.others.Load() }

func TestHubAloneIsCutOff(t *testing.T) {
	near := &aside{}
	twoHubs(t, Options{KeepAlive: time.Hour, Neighbours: near}, func(t *testing.T, x *exchange, a, _ *rig) {
		open := func(p *peer) bool {
			p.settled()
			select {
			case <-p.over:
				return false
			default:
				return true
			}
		}
		p := a.open("/ws?clientId=me")
		x.hubs["b"].sever(true) // and says no more of itself than a
		x.hubs["a"].sever(true)
		time.Sleep(10 * time.Minute)
		require.True(t, open(p), "nobody is better off")
		require.False(t, near.reached.Load())

		near.others.Store(true)
		time.Sleep(cutOffAfter)
		require.False(t, open(p), "another hub knows more")
		_, resp, err := a.request("/ws?clientId=me", nil)
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)

		near.others.Store(false)
		time.Sleep(2 * heartbeatInterval)
		require.True(t, open(a.open("/ws?clientId=me")), "nobody is better off any more")

		x.hubs["a"].sever(false)
		time.Sleep(heartbeatInterval)
		last := a.open("/ws?clientId=me")
		x.hubs["a"].sever(true)
		time.Sleep(cutOffAfter / 2)
		require.True(t, open(last), "not for a moment")
	})
}
