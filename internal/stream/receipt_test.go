package stream

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// toldTo shows a prompt with one picture to a client that reads by hand, as
// synchronous programs do: it reads up to the end, but not the ping that follows.
func toldTo(r *rig, prompt string) *peer {
	p := r.dial("/ws?clientId=me", nil)
	run := r.run("me", prompt)
	run.Send(other(executed(prompt)))
	time.AfterFunc(tick, func() { run.End(other(success(prompt))) }) // it is reading before that, and so sees a ping
	p.readTo(null(prompt))
	synctest.Wait() // the hub also knows that it was written
	return p
}

// readTo reads up to a message, and answers pings meanwhile.
func (p *peer) readTo(last string) {
	for word := ""; word != last; {
		_, data, err := p.conn.Read(p.t.Context())
		require.NoError(p.t, err)
		word = string(data)
	}
}

func executed(prompt string) string {
	return `{"type": "executed", "data": {"node": "9", "output": {"images": [{"filename": "` + prompt +
		`_00001_.png", "subfolder": "", "type": "output"}]}, "prompt_id": "` + prompt + `"}}`
}

// toldAgain returns everything that a new socket of the client is shown.
func toldAgain(r *rig) []string {
	p := r.open("/ws?clientId=me")
	time.Sleep(2 * receiptGrace)
	return p.settled()
}

var (
	nothing = words(hello(0, "me"))
	allOfA  = words(hello(0, "me"), start("a"), executed("a"), success("a"), status(0), null("a"))
)

// Messages that a client has read are not shown again, whatever proves that it has read them.
// Messages that it may not have read are shown again.
func TestReceipts(t *testing.T) {
	t.Parallel()
	me := Key{Client: "me"}
	for name, c := range map[string]struct {
		// after is called once all of prompt a has been written to the socket.
		after func(t *testing.T, r *rig, p *peer)
		want  []string
	}{
		"closed in order": {func(_ *testing.T, _ *rig, p *peer) {
			_ = p.conn.Close(websocket.StatusNormalClosure, "")
		}, nothing},
		"closed in order by a client that would have answered a ping": {func(_ *testing.T, r *rig, p *peer) {
			r.unread("me")
			_ = p.conn.Close(websocket.StatusNormalClosure, "")
		}, allOfA},
		"a tab was closed": {func(_ *testing.T, _ *rig, p *peer) {
			_ = p.conn.Close(websocket.StatusGoingAway, "")
		}, nothing},
		"closed without a code": {func(_ *testing.T, _ *rig, p *peer) {
			_ = p.conn.Close(websocket.StatusNoStatusRcvd, "")
		}, nothing},
		"closed because of a message that it cannot read": {func(_ *testing.T, _ *rig, p *peer) {
			_ = p.conn.Close(websocket.StatusMessageTooBig, "")
		}, allOfA},
		"closed by a watchdog": {func(_ *testing.T, _ *rig, p *peer) { _ = p.conn.Close(4000, "") }, allOfA},
		"cut off":              {func(_ *testing.T, _ *rig, p *peer) { _ = p.conn.CloseNow() }, allOfA},
		"posted the next": {func(_ *testing.T, r *rig, p *peer) {
			r.streams.PostedNext(me, "b")
			_ = p.conn.CloseNow()
		}, nothing},
		"posted the next after it was cut off": {func(_ *testing.T, r *rig, p *peer) {
			_ = p.conn.CloseNow()
			synctest.Wait()
			r.streams.PostedNext(me, "b")
		}, nothing},
		"posted the next before its pong was there": {func(t *testing.T, r *rig, p *peer) {
			// It posted without having read, and has only just begun to read.
			r.unread("me")
			r.streams.PostedNext(me, "b")
			_, probe := r.numbers("me")
			r.streams.receipts.received(me, 0, probe)
			_ = p.conn.CloseNow()
		}, allOfA},
		"posted the next without having read": {func(t *testing.T, r *rig, p *peer) {
			r.unread("me")
			r.streams.PostedNext(me, "b")
			_ = p.conn.CloseNow()
		}, allOfA},
		"posted the same again": {func(_ *testing.T, r *rig, p *peer) {
			r.streams.PostedNext(me, "a")
			_ = p.conn.CloseNow()
		}, allOfA},
		"another client posted": {func(_ *testing.T, r *rig, p *peer) {
			r.streams.PostedNext(Key{Client: "you"}, "b")
			r.streams.PostedNext(Key{Tenant: "other", Client: "me"}, "b")
			_ = p.conn.CloseNow()
		}, allOfA},
		"fetched the result": {func(_ *testing.T, r *rig, p *peer) {
			r.streams.Fetched([]Key{{Client: "you"}, me}, []string{"z", "a"})
			_ = p.conn.CloseNow()
		}, nothing},
		"fetched another result": {func(_ *testing.T, r *rig, p *peer) {
			r.streams.Fetched([]Key{me}, []string{"b"})
			_ = p.conn.CloseNow()
		}, allOfA},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, r *rig) {
				p := toldTo(r, "a")
				synctest.Wait()
				c.after(t, r, p)
				synctest.Wait()
				require.Equal(t, c.want, toldAgain(r))
				require.Equal(t, words("me/a"), r.delivered(), "once, by whatever receipt")
			})
		})
	}
}

// unread makes the hub forget that a client has answered the probes before its prompts.
func (r *rig) unread(id string) {
	r.streams.clients.change(Key{Client: id}, false, func(c *client) {
		for _, q := range c.line.lists.sent {
			q.read = false
		}
	})
}

// numbers returns the last mark and the last probe of a client.
func (r *rig) numbers(id string) (mark, probe uint64) {
	r.streams.clients.change(Key{Client: id}, false, func(c *client) { mark, probe = c.line.to.mark, c.line.to.probe })
	return mark, probe
}

// A hub that stops may close a socket between the messages of an end: counting for the status
// between them takes a while. The client answers the close frame, and has not read all of the end.
func TestStoppedWithinAnEnd(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		synctest.Wait()
		slow := make(chan struct{})
		r.mu.Lock()
		r.slow = slow
		r.mu.Unlock()
		a.End(other(success("a")))
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(slow) })
		require.NoError(t, r.streams.Close(t.Context()))
		require.Equal(t, websocket.StatusGoingAway, p.closeCode())
		require.Equal(t, words(hello(0, "me"), start("a"), success("a")), p.take())
		require.Empty(t, r.delivered())
	})
}

// A request proves nothing about an end that was not sent to any socket.
func TestReceiptsOfNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		a := r.run("me", "a")
		a.Send(other(executed("a")))
		a.End(other(success("a")))
		me := Key{Client: "me"}
		r.streams.PostedNext(me, "b")
		r.streams.Fetched([]Key{me}, []string{"a"}) // many clients poll, and only then open their socket
		require.Equal(t, allOfA, r.open("/ws?clientId=me").settled(), "and it is not late")
	})
}

// A client whose last socket was cut opens the next one before it posts.
func TestSocketBeforeThePost(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := toldTo(r, "a")
		_ = p.conn.CloseNow()
		synctest.Wait()
		p = r.open("/ws?clientId=me")
		time.Sleep(receiptGrace - tick)
		require.Equal(t, nothing, p.settled(), "it may still post")
		r.streams.PostedNext(Key{Client: "me"}, "b")
		r.run("me", "b").End(other(success("b")))
		require.Equal(t, words(start("b"), success("b"), status(0), null("b")), p.settled(), "at once")
		time.Sleep(2 * receiptGrace)
		require.Empty(t, p.settled())
	})
}

// An older socket's receipt counts even after a newer one has connected, because
// their order is random.
func TestTwoSocketsOfOneClient(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		old := toldTo(r, "a")
		p := r.open("/ws?clientId=me")
		require.Equal(t, nothing, p.settled())
		_ = old.conn.Close(websocket.StatusNormalClosure, "")
		time.Sleep(2 * receiptGrace)
		require.Empty(t, p.settled())
		require.Equal(t, words("me/a"), r.delivered())
	})
}

// A prompt that is waiting for its receipt comes before a running one, whose start is not lost.
func TestToldAgainBeforeWhatRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		_ = toldTo(r, "a").conn.CloseNow()
		synctest.Wait()
		p := r.open("/ws?clientId=me")
		b := r.run("me", "b")
		require.Equal(t, nothing, p.settled())
		time.Sleep(receiptGrace)
		b.End()
		require.Equal(t, append(slices.Clone(allOfA[1:]), start("b"), status(0), null("b")), p.settled())
	})
}

// A client with other prompts in progress posts without having read anything.
func TestParallelClientPosts(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := toldTo(r, "a")
		b := r.run("me", "b")
		_ = p.conn.CloseNow()
		synctest.Wait()
		r.streams.PostedNext(Key{Client: "me"}, "c")
		require.Equal(t, append(slices.Clone(allOfA), start("b")), toldAgain(r))
		b.End()
	})
}

// The receipt may arrive at a hub that has neither the socket nor the run.
func TestReceiptsAtOtherHubs(t *testing.T) {
	t.Parallel()
	me := Key{Client: "me"}
	for name, receipt := range map[string]func(t *testing.T, a, b *rig, p *peer){
		"closed in order": func(_ *testing.T, _, _ *rig, p *peer) { _ = p.conn.Close(websocket.StatusNormalClosure, "") },
		"fetched the result": func(_ *testing.T, _, b *rig, p *peer) {
			b.streams.Fetched([]Key{me}, []string{"a"})
			synctest.Wait()
			_ = p.conn.CloseNow()
		},
		"posted the next": func(_ *testing.T, a, b *rig, p *peer) {
			_ = p.conn.CloseNow()
			a.streams.PostedNext(me, "b")
		},
	} {
		for _, runs := range []string{"a", "b"} {
			t.Run(name+" of a run at "+runs, func(t *testing.T) {
				twoHubs(t, Options{}, func(t *testing.T, _ *exchange, a, b *rig) {
					p := a.dial("/ws?clientId=me", nil)
					synctest.Wait()
					at := map[string]*rig{"a": a, "b": b}[runs]
					run := at.job("me", "a", 1)
					time.AfterFunc(tick, func() { run.End(other(success("a"))) })
					p.readTo(null("a"))
					synctest.Wait()
					receipt(t, a, b, p)
					synctest.Wait()
					require.Equal(t, nothing, toldAgain(b))
					require.Equal(t, nothing, toldAgain(a))
				})
			})
		}
	}
}

// A client's socket is cut at one hub. It opens the next socket at another hub and
// then posts.
func TestPostAfterTheSocketMoved(t *testing.T) {
	twoHubs(t, Options{}, func(t *testing.T, _ *exchange, a, b *rig) {
		p := toldTo(a, "a")
		_ = p.conn.CloseNow()
		synctest.Wait()
		p = b.open("/ws?clientId=me")
		time.Sleep(receiptGrace / 2)
		require.Equal(t, nothing, p.settled())
		b.streams.PostedNext(Key{Client: "me"}, "b")
		time.Sleep(2 * receiptGrace)
		require.Empty(t, p.settled())
	})
}

// An end is sent to a second socket because the first one was lost. A client that has answered the
// ping before it there but has not been sent all of it yet has not read it, although the end was
// written to the first socket.
func TestPostWhileAnEndIsSentAgain(t *testing.T) {
	t.Parallel()
	l, r := openLine()
	q := l.begin("a", 1)
	l.end(q, []Message{other("end a")})
	l.lists.written(q.mark)
	l.detach()
	l.attach(r.out, false)
	l.reads(q.probe)
	require.True(t, l.lists.doubtful(), "it may have read it from the first socket")
	require.Empty(t, l.postedNext("b"))

	l.detach()
	var forwarded []item
	l.forward(func(it item) { forwarded = append(forwarded, it) })
	require.Zero(t, forwarded[len(forwarded)-1].tells, "nor may another hub think so")
	l.recall()

	l.attach(r.out, false)
	l.reads(q.probe)
	l.lists.written(q.mark)
	require.Equal(t, []*sequence{q}, l.postedNext("b"))
}

// A pong may be late by more than the replay window. It confirms nothing that the client was sent
// after the hub had forgotten it.
func TestPongOfAForgottenStream(t *testing.T) {
	bubble(t, Options{ReplayWindow: time.Minute}, func(t *testing.T, r *rig) {
		p := toldTo(r, "a")
		synctest.Wait()
		mark, probe := r.numbers("me")
		_ = p.conn.CloseNow()
		time.Sleep(2 * time.Minute)

		p = toldTo(r, "b")
		synctest.Wait()
		r.unread("me")
		r.streams.receipts.received(Key{Client: "me"}, mark, probe)
		r.streams.PostedNext(Key{Client: "me"}, "c")
		require.Empty(t, r.delivered())
		_ = p.conn.CloseNow()
		synctest.Wait()
		require.Contains(t, toldAgain(r), null("b"))
	})
}

// A newer socket may take over just when the writer of the older one has taken an end from its
// queue. Nothing is written in that case.
func TestMutedSocketTellsNothing(t *testing.T) {
	t.Parallel()
	w := &socket{wake: make(chan struct{}, 1)}
	w.queue.limit = 1 << 20
	w.mute()
	require.True(t, w.queue.push(item{frame: executingNull("a"), tells: 1}))
	require.NoError(t, (&writer{socket: w, observe: unobserved{}}).due(t.Context()))
	_, told, _ := w.marks()
	require.Zero(t, told)
}
