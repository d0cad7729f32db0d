package machines

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/keyring/keyringtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// A token for joining is good once, for the machine that shows it first, also when that missed the
// answer. It opens no tunnel, and is not good for another name.
func TestJoin(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx := t.Context()
		store := keyringtest.NewStore()
		one, two := New(db, keyringtest.Open(t, store)), New(db, keyringtest.Open(t, store)) // two hubs
		once := must.Get(one.Invite(ctx, "gpu-1", time.Hour))(t)
		finds(t, two, once, false)
		const own, other = "gpu-1:MADEUPBYTHEMACHINE", "gpu-1:MADEUPBYATHIEF"
		require.ErrorIs(t, two.Join(ctx, once+"x", hashOf(own)), tunnel.ErrToken)
		require.ErrorIs(t, two.Join(ctx, strings.Replace(once, "gpu-1", "gpu-2", 1), hashOf(own)), tunnel.ErrToken)
		require.ErrorIs(t, two.Join(ctx, once, "no hash"), tunnel.ErrToken)
		finds(t, one, own, false)

		require.NoError(t, two.Join(ctx, once, hashOf(own)))
		finds(t, one, own, true)
		require.ErrorIs(t, one.Join(ctx, once, hashOf(other)), tunnel.ErrToken)
		require.NoError(t, one.Join(ctx, once, hashOf(own)), "it asks again")
		finds(t, two, own, true)
		finds(t, two, other, false)

		require.NoError(t, one.Withdraw(ctx, "gpu-1"))
		finds(t, two, own, false)
		require.ErrorIs(t, two.Join(ctx, once, hashOf(own)), tunnel.ErrToken)
	})
}

// Who can write to Redis cannot use a token again either.
func TestJoinAgainWithWhatRedisForgot(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		m := New(db, keyringtest.New(t))
		once := must.Get(m.Invite(t.Context(), "gpu-1", time.Hour))(t)
		require.NoError(t, m.Join(t.Context(), once, hashOf("gpu-1:FIRST")))
		require.NoError(t, db.Client().Del(t.Context(), db.Key("g", "join", "gpu-1")).Err())
		require.ErrorIs(t, m.Join(t.Context(), once, hashOf("gpu-1:SECOND")), tunnel.ErrToken)
	})
}

// A token for joining ends unused.
func TestJoinTooLate(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		m := New(db, keyringtest.New(t))
		late := must.Get(m.Invite(t.Context(), "gpu-1", -time.Second))(t)
		good := must.Get(m.Invite(t.Context(), "gpu-2", time.Hour))(t)
		require.ErrorIs(t, m.Join(t.Context(), late, hashOf("gpu-1:OWN")), tunnel.ErrToken)
		require.NoError(t, m.Tidy(t.Context()))
		require.Len(t, must.Get(m.invited.IDs(t.Context()))(t), 1)
		require.NoError(t, m.Join(t.Context(), good, hashOf("gpu-2:OWN")))
	})
}
