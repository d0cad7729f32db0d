package stream

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// A connection that is held up, or whose client posts several prompts before it reads
// anything, takes whatever is written to it. It must not pass for a client that has read
// the end, whatever the client posts then.
func TestPostsOfAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	r := loopback(t, Options{})
	me := Key{Client: "me"}
	deaf := r.dial("/ws?clientId=me", nil)
	first := r.run("me", "first")
	time.AfterFunc(50*time.Millisecond, func() { first.End(other(success("first"))) })
	for last := ""; last != null("first"); { // it answers pings while it reads
		_, data, err := deaf.conn.Read(t.Context())
		require.NoError(t, err)
		last = string(data)
	}
	require.Eventually(t, func() (answers bool) {
		r.streams.change(me, false, func(c *client) { answers = c.line.pongs })
		return answers
	}, patience, tick)
	r.streams.PostedNext(me, "a")
	r.run("me", "a").End(other(success("a")))
	r.awaitTold(me)
	r.streams.PostedNext(me, "b")
	require.NoError(t, deaf.conn.CloseNow())

	p := r.open("/ws?clientId=me")
	want := words(hello(0, "me"), start("a"), success("a"), status(0), null("a"))
	require.Eventually(t, func() bool { return p.received() == len(want) }, patience, tick)
	require.Equal(t, want, p.take())
	require.Eventually(t, func() bool { return slices.Equal(r.delivered(), words("me/first", "me/a")) }, patience, tick)
}

// The same where the hub has not seen yet that the client answers pings: its socket was
// held up from the beginning. The next one may go to another hub.
func TestPostsOfAClientThatHasNotReadYet(t *testing.T) {
	type row struct {
		posts   int
		closes  bool // the old socket, before the posts
		arrives bool // the new socket, before the posts
		late    bool // the hub hears of that after a while
		known   bool // to answer pings, from an earlier time
		again   bool
	}
	sideBySide(t, map[string]row{
		"posts":                           {posts: 1, again: true},
		"posts and posts":                 {posts: 2, again: true},
		"posts, and has another socket":   {posts: 1, arrives: true, again: true},
		"has closed its socket, and post": {posts: 1, closes: true},
		"the hub hears late of its close": {posts: 1, closes: true, late: true, again: true},
		"posts without waiting for ends":  {posts: 9, again: true},
		"is cut off, and posts":           {posts: 1, closes: true, known: true, again: true},
	}, func(t *testing.T, c row) {
		r := loopback(t, Options{})
		me := Key{Client: "me"}
		if c.known {
			r.streams.received(me, 0, 1)
		}
		deaf := r.dial("/ws?clientId=me", nil)
		r.run("me", "a").End(other(success("a")))
		r.awaitTold(me)
		close := func() {
			require.NoError(t, deaf.conn.CloseNow())
			if !c.arrives {
				require.Eventually(t, func() (gone bool) {
					r.streams.change(me, false, func(c *client) { gone = c.socket == nil })
					return gone
				}, patience, tick)
			}
		}
		after := -patience // no close is late, however slow the machine is
		if c.late {
			after = promptly
		}
		r.streams.change(me, false, func(c *client) {
			c.socket.mu.Lock()
			defer c.socket.mu.Unlock()
			c.socket.toldAt = c.socket.toldAt.Add(-after)
		})
		if c.closes {
			close()
		}
		var p *peer
		if c.arrives {
			p = r.open("/ws?clientId=me")
		}
		for n := range c.posts {
			r.streams.PostedNext(me, fmt.Sprint("b", n))
		}
		if !c.closes {
			close()
		}
		if p == nil {
			p = r.open("/ws?clientId=me")
		}
		want := words(hello(0, "me"))
		if c.again {
			want = append(want, words(start("a"), success("a"), status(0), null("a"))...)
		}
		require.Eventually(t, func() bool {
			return p.received() == len(want) && slices.Equal(r.delivered(), words("me/a"))
		}, patience, tick)
		require.Equal(t, want, p.take())
	})
}

// A close frame is no receipt of a client that would have answered a ping.
func TestCloseOfAClientThatDoesNotRead(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := toldTo(t, r, "a")
		synctest.Wait()
		r.unread("me")
		require.NoError(t, p.conn.Close(websocket.StatusNormalClosure, ""))
		synctest.Wait()
		require.NotEmpty(t, toldAgain(r))
	})
}

// awaitTold waits until an end was written to a client's socket that it has not confirmed.
func (r *rig) awaitTold(k Key) {
	r.t.Helper()
	require.Eventually(r.t, func() (told bool) {
		r.streams.change(k, false, func(c *client) {
			c.noteWritten()
			told = len(c.line.sent) > 0 && !slices.ContainsFunc(c.line.sent, func(q *sequence) bool { return !q.told })
		})
		return told
	}, patience, tick)
}
