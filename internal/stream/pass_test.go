package stream

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

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

// A client hears everything from the moment on that its socket was accepted, also while the
// hub still asks the others to let go of the client.
func TestPassWhileTheSocketOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
