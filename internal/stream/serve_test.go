package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestFirstMessageIsStatusWithSID(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.setCount("me", 3)
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(`{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 3}}, "sid": "me"}}`), p.settled())
		r.streams.StatusChanged("me")
		require.Equal(t, words(`{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 3}}}}`), p.settled(),
			"only the first has a sid")
		require.Equal(t, 1, r.streams.Sockets())
		for _, path := range []string{"/ws", "/ws?clientId="} {
			require.Regexp(t, `"sid": "[0-9a-f]{32}"}}$`, r.open(path).settled()[0])
		}
	})
}

func TestOneClientTwoRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		stranger := r.open("/ws?clientId=you")
		p.settled()
		stranger.settled()
		a, b := r.run("me", "a"), r.run("me", "b")
		b.End(other(success("b")))
		require.Equal(t, words(start("a")), p.settled())
		prompt, ok := r.streams.Showing(Key{Client: "me"})
		require.True(t, ok)
		require.Equal(t, "a", prompt)
		r.setCount("me", 7)
		a.End(other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(7), null("a"), start("b"), success("b"), status(7), null("b"))[1:],
			p.settled())
		require.Equal(t, words("me/a", "me/b"), r.delivered(), "confirmed by pongs")
		require.Empty(t, stranger.settled(), "no foreign message")
		_, ok = r.streams.Showing(Key{Client: "me"})
		require.False(t, ok)
	})
}

func TestTenantsShareNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		run := r.streams.Begin(Key{Tenant: "other", Client: "me"}, "a", 1)
		run.Send(other(start("a")))
		run.End()
		require.Empty(t, p.settled())
	})
}

func TestRunsWithoutClient(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws")
		p.settled()
		for range 2 {
			run := r.run("", "a")
			run.Send(message(Progress, "x"))
			run.End(other(success("a")))
			run.Lose()
		}
		r.streams.Ended(Key{}, "b", other("x"))
		r.streams.Posted(Key{}, "b")
		require.False(t, r.streams.Replay(Key{}, "b"))
		r.streams.Broadcast(Key{}, other("x"))
		require.Empty(t, p.settled())
		require.Len(t, r.streams.clients, 1, "only the one with the minted id")
	})
}

func TestNewestSocketWins(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		old := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		old.settled()
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a")), p.settled())
		require.Equal(t, 2, r.streams.Sockets(), "the old one stays open")
		old.leave()
		a.Send(other("a executed"))
		require.Equal(t, words("a executed"), p.settled(), "the old one's end changes nothing")
		require.Equal(t, 1, r.streams.Sockets())

		old, p = p, r.open("/ws?clientId=me")
		p.settled()
		time.Sleep(time.Minute)
		r.streams.StatusChanged()
		a.End()
		r.streams.Broadcast(Key{Client: "me"}, other("hello"))
		require.Empty(t, old.settled(), "the old one gets nothing at all")
		require.Contains(t, p.settled(), null("a"))

		// When the new one goes the old one does not come back to life.
		p.leave()
		r.run("me", "b")
		require.Empty(t, old.settled())
		old.announce()
		require.Empty(t, old.settled())
	})
}

func TestReconnectInMidRun(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // the window of a fresh hub is over
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
		require.Empty(t, r.streams.clients, "nothing is kept for a client that does not come back")
		require.Equal(t, words(hello(0, "me")), r.open("/ws?clientId=me").settled())
	})
}

func TestSocketOpensAfterThePost(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // the window of a fresh hub is over
		r.streams.Posted(Key{Client: "me"}, "a")
		r.run("me", "a").End(other(success("a")))
		r.run("late", "b").End()
		time.Sleep(59 * time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), r.open("/ws?clientId=me").settled())
		require.Equal(t, words(hello(0, "late")), r.open("/ws?clientId=late").settled(), "nobody said that it was posted")
	})
}

func TestFreshHubGivesAWindow(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.streams.Ended(Key{Client: "me"}, "a", other(start("a")), other(success("a")))
		time.Sleep(50 * time.Second)
		require.Equal(t, words(hello(0, "me"), start("a"), success("a"), status(0), null("a")), r.open("/ws?clientId=me").settled(),
			"its socket went down with the hub before")
	})
}

func TestUnconfirmedIsReplayed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		// A client that reads by hand answers no ping unless it reads on.
		p := r.dial("/ws?clientId=me", nil)
		r.run("me", "a").End()
		for range 4 {
			_, _, err := p.conn.Read(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, p.conn.CloseNow())
		synctest.Wait()
		require.Empty(t, r.delivered())
		require.Equal(t, words(hello(0, "me"), start("a"), status(0), null("a")), r.open("/ws?clientId=me").settled())
		require.Equal(t, words("me/a"), r.delivered())
	})
}

func TestReplayOfAPostedAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		k := Key{Client: "me"}
		require.False(t, r.streams.Replay(k, "a"))
		r.run("me", "a").End()
		p.settled()
		require.False(t, r.streams.Replay(k, "a"), "received, so no longer known")
		r.streams.Ended(k, "a", other(start("a")), other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(0), null("a")), p.settled())
	})
}

func TestLostRunOnTheWire(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		a := r.run("me", "a")
		a.Lose()
		a.Send(other("late"))
		again := r.streams.Begin(Key{Client: "me"}, "a", 2)
		again.Send(other(start("a")))
		again.End(other(success("a")))
		require.Equal(t, words(start("a"), start("a"), success("a"), status(0), null("a")), p.settled())
	})
}

func TestLiveEvents(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me&events=live")
		p.settled()
		a, b := r.run("me", "a"), r.run("me", "b")
		a.Send(other("a executed"))
		b.Send(other("b executed"))
		require.Equal(t, words(start("a"), start("b"), "a executed", "b executed"), p.settled())
	})
}

func TestBroadcast(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.streams.Broadcast(Key{Client: "me"}, other("nobody"))
		p := r.open("/ws?clientId=me")
		p.settled()
		r.run("me", "a")
		r.streams.Broadcast(Key{Client: "me"}, other(`{"type": "crystools.monitor"}`))
		require.Equal(t, words(start("a"), `{"type": "crystools.monitor"}`), p.settled())
	})
}

func TestStatusIsCoalesced(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		for i := range 1000 {
			r.setCount("me", i)
			r.streams.StatusChanged("me", "unknown")
			time.Sleep(tick)
		}
		time.Sleep(time.Second)
		got := p.settled()
		require.Len(t, got, 11, "about ten a second")
		require.Equal(t, status(999), got[10], "the last one is right")
		// The status of an own end is not held back.
		for i := range 5 {
			r.setCount("me", 10-i)
			r.run("me", fmt.Sprint(i)).End()
			require.Equal(t, words(start(fmt.Sprint(i)), status(10-i), null(fmt.Sprint(i))), p.settled())
		}
		// It takes the place of one that is due.
		r.run("me", "x").End()
		r.streams.StatusChanged("me")
		r.run("me", "y").End()
		time.Sleep(time.Second)
		require.Len(t, p.settled(), 6)
	})
}

func TestStatusIsNeverHeld(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		r.run("me", "a")
		r.run("me", "b").End()
		require.Equal(t, words(start("a")), p.settled(), "b is held")
		r.setCount("me", 1)
		r.streams.StatusChanged()
		require.Equal(t, words(status(1)), p.settled())
	})
}

func TestKeepAlive(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		var pings int
		browser := r.dial("/ws?clientId=web", &websocket.DialOptions{
			HTTPHeader:     http.Header{"Origin": {"http://127.0.0.1"}},
			OnPingReceived: func(context.Context, []byte) bool { pings++; return true },
		})
		browser.read()
		p.settled()
		browser.settled()
		r.setCount("me", 2)
		time.Sleep(9*time.Second - tick)
		require.Empty(t, p.settled())
		time.Sleep(2 * tick)
		require.Equal(t, words(status(2)), p.settled(), "and the number is asked for anew")
		time.Sleep(27 * time.Second)
		require.Len(t, p.settled(), 3)
		require.Empty(t, browser.settled())
		require.Equal(t, 4, pings)
	})
}

func TestCountCannotBeHad(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.setCount("me", 4)
		p := r.open("/ws?clientId=me")
		p.settled()
		r.mu.Lock()
		r.fail = errors.New("away")
		r.mu.Unlock()
		r.streams.StatusChanged("me")
		require.Empty(t, p.settled(), "no number, no message")
		r.run("me", "a").End()
		require.Equal(t, words(start("a"), status(4), null("a")), p.settled(), "but an end is never held up")
	})
}

func TestCountIsSharedByTheSocketsOfACaller(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.ident.Caller = "tenant"
		var peers []*peer
		for i := range 20 {
			peers = append(peers, r.open(fmt.Sprint("/ws?clientId=", i)))
		}
		synctest.Wait()
		asked := r.asked
		r.setCount("tenant", 5)
		r.streams.StatusChanged("tenant")
		for i, p := range peers {
			require.Equal(t, words(hello(0, fmt.Sprint(i)), status(5)), p.settled())
		}
		require.Equal(t, 1, r.asked-asked)
	})
}

func TestClientThatDoesNotRead(t *testing.T) {
	bubble(t, Options{HoldBytes: 64 << 10}, func(t *testing.T, r *rig) {
		dead := r.dial("/ws?clientId=me", nil)
		a := r.run("me", "a")
		for range 5000 {
			a.Send(message(Preview, strings.Repeat("p", 1000)))
			a.Send(message(Progress, strings.Repeat("x", 100)))
		}
		require.Equal(t, 1, r.streams.Sockets(), "previews and progress alone do not fill it")
		for range 400 {
			a.Send(other(strings.Repeat("e", 1000)))
		}
		time.Sleep(30 * time.Second) // the close frame cannot be written either
		synctest.Wait()
		require.Zero(t, r.streams.Sockets())
		a.End(other(success("a")))
		dead.leave()
		p := r.open("/ws?clientId=me")
		got := p.settled()
		require.Equal(t, words(hello(0, "me"), start("a")), got[:2], "the stream can be had again")
		require.Equal(t, words(success("a"), status(0), null("a")), got[len(got)-3:])
	})
}

func TestUnwrittenResultsGiveUpTheirFile(t *testing.T) {
	bubble(t, Options{SpillBytes: 1}, func(t *testing.T, r *rig) {
		p := r.dial("/ws?clientId=me", nil) // reads nothing
		a := r.run("me", "a")
		for range 3 {
			a.Send(message(Result, "picture"))
		}
		synctest.Wait()
		file := a.sequence.log.spill
		require.Equal(t, int32(1+3), file.refs.Load(), "the log and what waits in the socket")
		require.NoError(t, p.conn.CloseNow())
		synctest.Wait()
		require.Equal(t, int32(1), file.refs.Load())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, file.refs.Load(), "the client did not come back")
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

func TestInboundLimit(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		p.say(websocket.MessageText, strings.Repeat("x", readLimit))
		p.say(websocket.MessageBinary, "x")
		require.Empty(t, p.settled())
		// The write may fail in the middle, when the server has had enough.
		_ = p.conn.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("x", 5<<20)))
		require.Equal(t, websocket.StatusMessageTooBig, p.closeCode())
	})
}

func TestPingIsAnswered(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		require.NoError(t, p.conn.Ping(t.Context()))
	})
}

func TestDeflate(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		conn, resp, err := r.request("/ws?clientId=me", &websocket.DialOptions{CompressionMode: websocket.CompressionContextTakeover})
		require.NoError(t, err)
		require.Equal(t, "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
			resp.Header.Get("Sec-WebSocket-Extensions"))
		conn.SetReadLimit(-1)
		p := &peer{t: t, conn: conn, over: make(chan struct{})}
		p.read()
		defer p.leave()
		a := r.run("me", "a")
		long := strings.Repeat("long text ", 100_000)
		a.Send(other(long))
		a.Send(Message{Binary: true, Data: []byte(long)})
		a.Send(Message{Binary: true, Data: []byte("tiny")})
		a.Send(Message{Binary: true})
		require.Equal(t, words(hello(0, "me"), start("a"), long, "binary:"+long, "binary:tiny", "binary:"), p.settled())
	})
}

func TestSocketsAreLimited(t *testing.T) {
	bubble(t, Options{MaxSockets: 2}, func(t *testing.T, r *rig) {
		p := r.open("/ws")
		r.open("/ws")
		synctest.Wait()
		_, resp, err := r.request("/ws", nil)
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.ErrorIs(t, r.errs[0], ErrFull)
		p.leave()
		synctest.Wait()
		r.open("/ws")
		_, _, err = r.request("/ws", nil)
		require.Error(t, err)
		r.streams.SetLimits(0, 3)
		r.open("/ws")
	})
}

func TestClose(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		deaf := r.dial("/ws?clientId=deaf", nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.streams.Close(ctx), context.DeadlineExceeded, "deaf does not answer")
		require.Equal(t, websocket.StatusGoingAway, p.closeCode())
		require.Zero(t, r.streams.Sockets())
		deaf.leave()

		// Everything is quiet afterwards.
		a.End()
		r.run("me", "b").End()
		r.streams.Posted(Key{Client: "x"}, "x")
		r.streams.StatusChanged()
		require.Empty(t, r.streams.clients)
		_, resp, err := r.request("/ws", nil)
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.NoError(t, r.streams.Close(t.Context()), "twice is fine")
	})
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for _, upgrade := range []string{"", "websocket"} { // the rest of the handshake is missing
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/ws", nil)
		r.Header.Set("Upgrade", upgrade)
		require.Error(t, s.Serve(w, r, Ident{}))
		require.GreaterOrEqual(t, w.Code, 400)
	}
	require.Zero(t, s.opening, "a broken handshake gives its place back")
	require.NoError(t, s.Close(t.Context()))
}
