package stream

import (
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestReconnectInMidRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // the replay window of a new hub has ended
		p := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		a.Send(message(Executing, "executing 1"))
		a.Send(message(ProgressState, "state 1"))
		a.Send(other("executed 1"))
		p.settled()
		p.leave()
		time.Sleep(59 * time.Second)
		a.Send(message(ProgressState, "state 2"))
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a"), "executing 1", "executed 1", "state 2"), p.settled())

		p.leave()
		time.Sleep(61 * time.Second)
		a.Send(message(Progress, "1"))
		a.Send(message(ProgressState, "state 3"))
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), "executing 1", "state 3"), p.settled(), "later it is as in ComfyUI")
		a.End(other(success("a")))
		require.Equal(t, words(success("a"), status(0), null("a")), p.settled())
	})
}

func TestEndedWhileAway(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		p.settled()
		p.leave()
		a.End(other(success("a")))
		require.Empty(t, r.delivered())
		time.Sleep(30 * time.Second)
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), p.settled())
		require.Equal(t, words("me/a"), r.delivered())
		p.leave()
		p = r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me")), p.settled(), "what was received does not come again")

		p.leave()
		r.run("me", "b").End()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		require.Empty(t, r.streams.clients.clients, "nothing is kept for a client that does not come back")
		require.Equal(t, words(hello(0, "me")), r.open("/ws?clientId=me").settled())
	})
}

func TestSocketOpensAfterThePost(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // the replay window of a new hub has ended
		r.streams.Posted(Key{Client: "me"}, time.Now())
		r.run("me", "a").End(other(success("a")))
		r.run("late", "b").End()
		time.Sleep(59 * time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), r.open("/ws?clientId=me").settled())
		require.Equal(t, words(hello(0, "late")), r.open("/ws?clientId=late").settled(), "nobody said that it was posted")
	})
}

func TestFreshHubGivesAWindow(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.streams.Ended(Key{Client: "me"}, Attempt{Prompt: "a"}, other(start("a")), other(success("a")))
		time.Sleep(50 * time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), r.open("/ws?clientId=me").settled(),
			"its socket went down with the hub before")
	})
}

// The hub that holds a socket, and one where the prompt was posted again, both find that its end
// was not told. The client may have confirmed the first one before the second arrives.
func TestTwoHubsTellOneEnd(t *testing.T) {
	t.Parallel()
	k := Key{Client: "me"}
	for name, first := range map[string]string{"the owner is first": "a", "the owner is second": "b"} {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", confirmed: ", confirmed), func(t *testing.T) {
				twoHubs(t, Options{}, func(t *testing.T, _ *exchange, a, b *rig) {
					p := a.open("/ws?clientId=me")
					time.Sleep(time.Second)
					p.settled()
					tellers := []*rig{a, b}
					if first == "b" {
						slices.Reverse(tellers)
					}
					for _, r := range tellers {
						r.streams.EndedElsewhere(k, "a", "job a", other(start("a")), other(success("a")))
						if confirmed {
							time.Sleep(time.Second)
						}
					}
					time.Sleep(10 * time.Second)
					told := slices.DeleteFunc(p.settled(), func(m string) bool { return m == status(0) })
					require.Equal(t, words(start("a"), success("a"), null("a")), told)
				})
			})
		}
	}
}

// What the other hub sends arrives long after the client has confirmed the end.
func TestLateCopyOfAnEnd(t *testing.T) {
	k := Key{Client: "me"}
	twoHubs(t, Options{}, func(t *testing.T, x *exchange, a, b *rig) {
		p := a.open("/ws?clientId=me")
		time.Sleep(time.Second)
		p.settled()
		lose := func(lost bool) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.post = func(_ string, message []byte) [][]byte {
				if lost {
					return nil
				}
				return [][]byte{message}
			}
		}
		lose(true)
		for _, r := range []*rig{b, a} {
			r.streams.EndedElsewhere(k, "a", "job a", other(start("a")), other(success("a")))
		}
		time.Sleep(time.Second)
		lose(false)
		time.Sleep(time.Minute)
		told := slices.DeleteFunc(p.settled(), func(m string) bool { return m == status(0) })
		require.Equal(t, words(start("a"), success("a"), null("a")), told)
	})
}

func TestFlagsComeBeforeReplayedImages(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		a := r.run("me", "a")
		a.Send(Message{Kind: Result, Node: "2", Binary: true, Data: imageWithMetadata("{}", "jpeg bytes")})
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a")), p.settled())
		time.Sleep(100 * tick)
		p.announce()
		got := p.settled()
		require.Len(t, got, 2)
		require.Equal(t, "binary:"+string(imageWithMetadata("{}", "jpeg bytes")), got[0], "in the form that the client wants")
		p.leave()

		p = r.open("/ws?clientId=me")
		time.Sleep(flagGrace - tick)
		require.Len(t, p.settled(), 2)
		time.Sleep(2*tick + lateGrace)
		require.Equal(t, words("binary:"+string(image(formatJPEG, "jpeg bytes"))), p.settled(), "others say nothing")
	})
}

// A connection that is held up, or whose client posts several prompts before it reads anything,
// takes whatever is written to it. It must not pass for a client that has read the end, whatever
// the client posts then.
func TestPostsOfAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	r := loopback(t, Options{})
	me := Key{Client: "me"}
	deaf := r.dial("/ws?clientId=me", nil)
	first := r.run("me", "first")
	time.AfterFunc(50*time.Millisecond, func() { first.End(other(success("first"))) })
	deaf.readTo(null("first"))
	require.Eventually(t, func() (answers bool) {
		r.streams.clients.change(me, false, func(c *client) { answers = c.line.pongs })
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

// The same if the hub has not yet seen that the client answers pings: its socket was held up from
// the start. The next one may go to another hub.
func TestPostsOfAClientThatHasNotReadYet(t *testing.T) {
	type row struct {
		posts   int
		closes  bool // the old socket, before the posts
		arrives bool // the new socket, before the posts
		late    bool // the hub hears of that after a while
		known   bool // to answer pings, from an earlier time
		writer  bool // meets the close first
		again   bool
	}
	beside.Cases(t, map[string]row{
		"posts":                           {posts: 1, again: true},
		"posts and posts":                 {posts: 2, again: true},
		"posts, and has another socket":   {posts: 1, arrives: true, again: true},
		"has closed its socket, and post": {posts: 1, closes: true},
		"the writer meets its close":      {posts: 1, closes: true, writer: true},
		"the hub hears late of its close": {posts: 1, closes: true, late: true, again: true},
		"posts without waiting for ends":  {posts: 9, again: true},
		"is cut off, and posts":           {posts: 1, closes: true, known: true, again: true},
	}, func(t *testing.T, c row) {
		broken := &brokenPipes{Listener: must(net.Listen("tcp", "127.0.0.1:0"))}
		r := newRig(t, Options{}, broken)
		r.dialer = (&net.Dialer{}).DialContext
		me := Key{Client: "me"}
		if c.known {
			r.streams.receipts.received(me, 0, 1)
		}
		deaf := r.dial("/ws?clientId=me", nil)
		r.run("me", "a").End(other(success("a")))
		r.awaitTold(me)
		close := func() {
			if c.writer {
				broken.now.Store(true)
				r.streams.Statuses.Changed("me")
				defer broken.now.Store(false)
			} else {
				require.NoError(t, deaf.conn.CloseNow())
			}
			if !c.arrives {
				require.Eventually(t, func() (gone bool) {
					r.streams.clients.change(me, false, func(c *client) { gone = c.socket == nil })
					return gone
				}, patience, tick)
			}
		}
		after := -patience // no close is late, however slow the machine is
		if c.late {
			after = promptly
		}
		r.streams.clients.change(me, false, func(c *client) {
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

// brokenPipes are connections whose clients are gone, which shows to who writes.
type brokenPipes struct {
	net.Listener
	now atomic.Bool
}

func (l *brokenPipes) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &brokenPipe{conn, &l.now}, err
}

type brokenPipe struct {
	net.Conn
	broken *atomic.Bool
}

func (c *brokenPipe) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
	}
	return c.Conn.Write(p)
}

// awaitTold waits until an end that the client has not confirmed was written to its socket.
func (r *rig) awaitTold(k Key) {
	require.Eventually(r.t, func() (told bool) {
		r.streams.clients.change(k, false, func(c *client) {
			c.noteWritten()
			told = len(c.line.lists.sent) > 0 && !slices.ContainsFunc(c.line.lists.sent, func(q *sequence) bool { return !q.told })
		})
		return told
	}, patience, tick)
}
