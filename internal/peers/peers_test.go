package peers

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/e2e/storedtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds what takes no time on an idle machine.
const patience = time.Minute

// me is a client, every part of which would break an unpacked key.
var me = stream.Key{Tenant: "a:b", Client: "3:c}"}

// listener is a hub that listens.
type listener struct {
	*Peers
	t       *testing.T
	notices <-chan stream.Notice
}

func listen(t *testing.T, db *redis.DB, self string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{Peers: New(db, self), t: t}
	l.notices = l.Listen(ctx)
	t.Cleanup(func() {
		cancel()
		for range l.notices {
		}
	})
	require.Equal(t, stream.Resync, l.any().Kind, "before anything was heard everything may have been missed")
	// Both channels are subscribed once a message to oneself and a notice to all
	// have arrived.
	require.Eventually(t, func() bool {
		n, err := db.Client().PubSubNumSub(t.Context(), l.hubsChannel(), l.channelOf(self)).Result()
		return err == nil && n[l.hubsChannel()] > 0 && n[l.channelOf(self)] == 1
	}, patience, time.Millisecond)
	return l
}

func (l *listener) any() stream.Notice {
	l.t.Helper()
	select {
	case n, ok := <-l.notices:
		require.True(l.t, ok)
		return n
	case <-time.After(patience):
		require.FailNow(l.t, "nothing was heard")
		return stream.Notice{}
	}
}

// next returns the next notice that is not a Resync.
func (l *listener) next() stream.Notice {
	l.t.Helper()
	for {
		if n := l.any(); n.Kind != stream.Resync {
			return n
		}
	}
}

func TestOwners(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx := t.Context()
		a, b := listen(t, db, "hub/a"), listen(t, db, "hub/b")
		owners := must.Get(a.Owners(ctx, []stream.Key{me}))(t)
		require.Equal(t, []stream.Owner{{}}, owners)

		claim, err := a.Claim(ctx, stream.Ownership{Client: me, Entry: 7})
		require.NoError(t, err)
		atA := claim.Owner
		require.Equal(t, "hub/a", atA.Hub)
		require.Positive(t, atA.Number)
		require.True(t, claim.Moved)
		require.Equal(t, 1, claim.Others)
		claimed := stream.Notice{Kind: stream.Claimed, Client: me, Owner: atA}
		require.Equal(t, claimed, b.next())
		require.Equal(t, claimed, a.next(), "a hub hears itself, too")
		claim = must.Get(a.Claim(ctx, stream.Ownership{Client: me, Number: atA.Number, Entry: 8}))(t)
		require.Equal(t, stream.Claim{Owner: atA}, claim, "it is here already")

		claim = must.Get(b.Claim(ctx, stream.Ownership{Client: me, Entry: 1}))(t)
		atB := claim.Owner
		require.Greater(t, atB.Number, atA.Number)
		require.Equal(t, stream.Notice{Kind: stream.Claimed, Client: me, Owner: atB}, a.next())
		owners = must.Get(a.Owners(ctx, []stream.Key{{Tenant: "x"}, me}))(t)
		require.Equal(t, []stream.Owner{{}, atB}, owners)

		// A claim that was late is of an older socket.
		claim = must.Get(a.Claim(ctx, stream.Ownership{Client: me, Number: atA.Number, Entry: 8, Age: time.Hour}))(t)
		require.Equal(t, stream.Claim{Owner: atB}, claim)

		// So is one that a Redis that hung runs late.
		late := time.Now().Add(-time.Minute)
		claim = must.Get(a.claim(ctx, stream.Ownership{Client: me, Number: atA.Number, Entry: 8}, late))(t)
		require.Equal(t, stream.Claim{Owner: atB}, claim)

		// A late release by a former owner changes nothing.
		require.NoError(t, a.Release(ctx, stream.Ownership{Client: me, Number: atA.Number, Entry: 8}))
		// Nor does one of an ownership that a new entry has claimed since.
		_, err = b.Claim(ctx, stream.Ownership{Client: me, Entry: 2})
		require.NoError(t, err)
		require.NoError(t, b.Release(ctx, stream.Ownership{Client: me, Number: atB.Number, Entry: 1}))
		renewed := must.Get(a.Renew(ctx, []stream.Ownership{{Client: me, Number: atA.Number, Entry: 8}}))(t)
		require.Equal(t, []stream.Owner{atB}, renewed, "it is told whose it is")
		require.NoError(t, b.Release(ctx, stream.Ownership{Client: me, Number: atB.Number, Entry: 2}))
		require.Equal(t, stream.Notice{Kind: stream.Released, Client: me, Owner: atB}, a.next())
		owners = must.Get(a.Owners(ctx, []stream.Key{me}))(t)
		require.Equal(t, []stream.Owner{{}}, owners)

		// A Redis that lost its data, and whose clock is behind, knows no number as
		// high as those in use.
		far := atB.Number + 1_000_000
		claim = must.Get(b.Claim(ctx, stream.Ownership{Client: me, Number: far, Entry: 2}))(t)
		require.Equal(t, far+1, claim.Number)
		require.Equal(t, claim.Owner, a.next().Owner)
		require.NoError(t, b.Release(ctx, stream.Ownership{Client: me, Number: far + 1, Entry: 2}))
		require.Equal(t, stream.Released, a.next().Kind)

		// What Redis has lost is created again.
		renewed = must.Get(b.Renew(ctx, []stream.Ownership{{Client: me, Number: atB.Number, Entry: 2}}))(t)
		require.Equal(t, []stream.Owner{atB}, renewed)
	})
}

func TestAlive(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx := t.Context()
		a, b := listen(t, db, "hub/a"), New(db, "hub/b")
		alive := func() []bool {
			alive := must.Get(a.Alive(ctx, []string{"hub/b", "hub/nobody"}))(t)
			return alive
		}
		require.Equal(t, []bool{false, false}, alive())
		require.NoError(t, b.Heartbeat(ctx))
		require.Equal(t, []bool{true, false}, alive())
		owner := must.Get(b.Claim(ctx, stream.Ownership{Client: me, Entry: 1}))(t)
		require.Equal(t, stream.Claimed, a.next().Kind)
		require.NoError(t, b.Leave(ctx))
		require.Equal(t, stream.Notice{Kind: stream.Left, Hub: "hub/b"}, a.next())
		require.Equal(t, []bool{false, false}, alive())
		owners, err := a.Owners(ctx, []stream.Key{me})
		require.NoError(t, err)
		require.Equal(t, []stream.Owner{{}}, owners, "nobody has an owner at a hub that is gone")
		require.NoError(t, b.Heartbeat(ctx))
		owners = must.Get(a.Owners(ctx, []stream.Key{me}))(t)
		require.Equal(t, []stream.Owner{owner.Owner}, owners)
	})
}

func TestMessagesAndBlobs(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx := t.Context()
		a, b := listen(t, db, "hub/a"), New(db, "hub/b")
		for _, message := range [][]byte{[]byte("text"), {}, bytes.Repeat([]byte{0, 255, ':'}, 300_000)} {
			require.NoError(t, b.Send(ctx, "hub/a", message))
			n := a.next()
			require.Equal(t, stream.Messaged, n.Kind)
			require.True(t, bytes.Equal(message, n.Message))
		}
		require.NoError(t, b.Send(ctx, "hub/nobody", []byte("x")), "nobody knows whether it is read")

		for _, size := range []int{1, pieceBytes, 3*pieceBytes + 5} {
			data := bytes.Repeat([]byte{7, 0, 255}, size/3+1)[:size]
			ref := must.Get(b.PutBlob(ctx, data))(t)
			got, err := a.TakeBlob(ctx, ref)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
			_, err = a.TakeBlob(ctx, ref)
			require.ErrorIs(t, err, errNoBlob, "it is taken once")
		}
		left := must.Get(db.Client().Keys(ctx, db.Key("s", "parcel", "*")).Result())(t)
		require.Empty(t, left)
		ref := must.Get(b.PutBlob(ctx, []byte("x")))(t)
		ttl := must.Get(db.Client().PTTL(ctx, db.Key("s", "parcel", ref[:36])).Result())(t)
		require.Positive(t, ttl, "what nobody takes goes by itself")
		for _, bad := range []string{"", ref[:36], ref[:37], ref[:36] + "/-1", ref[:36] + "/x", ref[:36] + "/99999999999"} {
			_, err := a.TakeBlob(ctx, bad)
			require.Error(t, err, bad)
		}
	})
}

func TestUnknownNotices(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		"", "x", redis.Pack(), redis.Pack("message"), redis.Pack("sung", "x"), redis.Pack("claimed", "a"),
		redis.Pack("claimed", "a", "b", "1"), redis.Pack("claimed", "a", redis.Pack("t", "c"), "x"),
		redis.Pack("released", "a", redis.Pack("t"), "1"),
	} {
		_, ok := readNotice(payload)
		require.False(t, ok, "%q", payload)
	}
	n, ok := readNotice(redis.Pack("claimed", "a", redis.Pack("t", "c"), "1", "of a newer hub"))
	require.True(t, ok)
	require.Equal(t, stream.Owner{Hub: "a", Number: 1}, n.Owner)
}

func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := New(redistest.Open(t, server.URL()), "hub/a")
	server.Stop()
	ctx := t.Context()
	_, err := p.Claim(ctx, stream.Ownership{Client: me})
	require.Error(t, err)
	_, err = p.Renew(ctx, nil)
	require.Error(t, err)
	_, err = p.Owners(ctx, []stream.Key{me})
	require.Error(t, err)
	_, err = p.Alive(ctx, []string{"x"})
	require.Error(t, err)
	_, err = p.PutBlob(ctx, []byte("x"))
	require.Error(t, err)
	_, err = p.TakeBlob(ctx, "00000000-0000-0000-0000-000000000000/1")
	require.Error(t, err)
	require.Error(t, p.Send(ctx, "x", nil))
	require.Error(t, p.Heartbeat(ctx))
	require.Error(t, p.Leave(ctx))
	require.Error(t, p.Release(ctx, stream.Ownership{}))
}

func FuzzReadNotice(f *testing.F) {
	f.Add(redis.Pack("claimed", "a", redis.Pack("t", "c"), "1"))
	f.Add(redis.Pack("message", "x"))
	f.Fuzz(func(t *testing.T, payload string) {
		n, ok := readNotice(payload)
		require.True(t, ok || n.Kind == 0 && n.Message == nil)
		_, _, _ = readRef(payload)
	})
}

// Each publication of the last version's hubs is understood.
func TestMessagesOfTheLastVersion(t *testing.T) {
	t.Parallel()
	stored, err := storedtest.LastVersion()
	require.NoError(t, err)
	kinds := map[stream.NoticeKind]bool{}
	for _, p := range stored.Published {
		if !strings.Contains(p.Channel, ":s:") {
			continue // the queue's
		}
		notice, ok := readNotice(string(p.Payload))
		require.True(t, ok, "%s: %q", p.Channel, p.Payload)
		kinds[notice.Kind] = true
	}
	require.Len(t, kinds, 2, "a claim and messages")
}
