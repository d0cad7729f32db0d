package stream

import (
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
