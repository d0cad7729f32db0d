package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An end is sent to a second socket because the first one was lost. A client that has
// answered the ping before it there, but was not sent all of it yet, has not read it,
// although the end was written to the first socket.
func TestPostWhileAnEndIsSentAgain(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	l.attach(r.out, false)
	q := l.begin("a", 1)
	l.end(q, []Message{other("end a")})
	l.written(q.mark)
	l.detach()
	l.attach(r.out, false)
	l.reads(q.probe)
	require.True(t, l.doubtful(), "it may have read it from the first socket")
	require.Empty(t, l.postedNext("b"))

	l.detach()
	var forwarded []item
	l.forward(func(it item) { forwarded = append(forwarded, it) })
	require.Zero(t, forwarded[len(forwarded)-1].tells, "nor may another hub think so")
	l.recall()

	l.attach(r.out, false)
	l.reads(q.probe)
	l.written(q.mark)
	require.Equal(t, []*sequence{q}, l.postedNext("b"))
}

// A pong may be late by more than the replay window. It confirms nothing that the client
// was sent after the hub had forgotten it.
func TestPongOfAForgottenStream(t *testing.T) {
	bubble(t, Options{ReplayWindow: time.Minute}, func(t *testing.T, r *rig) {
		p := toldTo(t, r, "a")
		synctest.Wait()
		mark, probe := r.numbers("me")
		_ = p.conn.CloseNow()
		time.Sleep(2 * time.Minute)

		p = toldTo(t, r, "b")
		synctest.Wait()
		r.unread("me")
		r.streams.received(Key{Client: "me"}, mark, probe)
		r.streams.PostedNext(Key{Client: "me"}, "c")
		require.Empty(t, r.delivered())
		_ = p.conn.CloseNow()
		synctest.Wait()
		require.Contains(t, toldAgain(r), null("b"))
	})
}

// A newer socket may take over just when the writer of the older one has taken an end from
// its queue. Nothing is written then.
func TestMutedSocketTellsNothing(t *testing.T) {
	t.Parallel()
	w := &socket{wake: make(chan struct{}, 1), observe: unobserved{}}
	w.queue.limit = 1 << 20
	w.mute()
	require.True(t, w.queue.push(item{frame: executingNull("a"), tells: 1}))
	require.NoError(t, w.due(t.Context()))
	require.Zero(t, w.toldMark())
}
