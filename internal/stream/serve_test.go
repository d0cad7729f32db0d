package stream

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestOneClientTwoRuns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		stranger := r.open("/ws?clientId=you")
		p.settled()
		stranger.settled()
		a, b := r.run("me", "a"), r.run("me", "b")
		b.End(other(success("b")))
		require.Equal(t, words(start("a")), p.settled())
		r.setCount("me", 7)
		a.End(other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(7), null("a"), start("b"), success("b"), status(7), null("b"))[1:],
			p.settled())
		require.Equal(t, words("me/a", "me/b"), r.delivered(), "confirmed by pongs")
		require.Empty(t, stranger.settled(), "no remote message")
	})
}

// A client may have left a socket and reconnected before the hub gets around to the
// first one. That one must not take over, because nobody will read it.
func TestNewestSocketByHandshake(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.late = make(chan struct{})
		left := r.dial("/ws?clientId=me&late", nil)
		p := r.open("/ws?clientId=me")
		p.settled()
		close(r.late)
		synctest.Wait()
		require.NoError(t, left.conn.CloseNow())
		a := r.run("me", "a")
		a.End(other(success("a")))
		require.Equal(t, words(start("a"), success("a"), status(0), null("a")), p.settled())
	})
}

// Requests that never become sockets leave nothing, whatever clients they name.
func TestFailedHandshakesLeaveNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		time.Sleep(time.Hour) // a hub that has just started keeps what clients may come back for
		for n := range 100 {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ws", http.NoBody)
			id := Ident{Requester: r.ident.Requester}
			id.Client = fmt.Sprint("client", n)
			require.Error(t, r.streams.Sockets.Serve(httptest.NewRecorder(), req, id))
		}
		require.Empty(t, r.streams.clients.all())
	})
}

func TestTenantsShareNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		run := r.streams.Begin(Key{Tenant: "other", Client: "me"}, Attempt{Prompt: "a", Fence: 1})
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
		r.streams.Ended(Key{}, Attempt{Prompt: "b"}, other("x"))
		r.streams.Posted(Key{}, time.Now())
		require.False(t, r.streams.Owes(Key{}, "b", ""))
		r.streams.Send(Key{}, other("x"))
		require.Empty(t, p.settled())
		require.Len(t, r.streams.clients.clients, 1, "only the one with the minted id")
	})
}

func TestNewestSocketWins(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		old := r.open("/ws?clientId=me")
		a := r.run("me", "a")
		old.settled()
		p := r.open("/ws?clientId=me")
		require.Equal(t, words(hello(0, "me"), start("a")), p.settled())
		require.Equal(t, 2, r.streams.Sockets.Count(), "the old one stays open")
		old.leave()
		a.Send(other("a executed"))
		require.Equal(t, words("a executed"), p.settled(), "the old one's end changes nothing")
		require.Equal(t, 1, r.streams.Sockets.Count())

		old, p = p, r.open("/ws?clientId=me")
		p.settled()
		time.Sleep(time.Minute)
		r.streams.Statuses.Changed()
		a.End()
		r.streams.Send(Key{Client: "me"}, other("hello"))
		require.Empty(t, old.settled(), "the old one gets nothing at all")
		require.Contains(t, p.settled(), null("a"))

		// When the new socket closes, the old one stays silent.
		p.leave()
		r.run("me", "b")
		require.Empty(t, old.settled())
		old.announce()
		require.Empty(t, old.settled())
	})
}

func TestBroadcast(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		r.streams.Send(Key{Client: "me"}, other("nobody"))
		p := r.open("/ws?clientId=me")
		p.settled()
		r.run("me", "a")
		r.streams.Send(Key{Client: "me"}, other(`{"type": "crystools.monitor"}`))
		require.Equal(t, words(start("a"), `{"type": "crystools.monitor"}`), p.settled())
	})
}

func TestClientThatDoesNotRead(t *testing.T) {
	bubble(t, Options{HoldBytes: 64 << 10}, func(t *testing.T, r *rig) {
		dead, quick := r.dial("/ws?clientId=me", nil), r.open("/ws?clientId=you")
		synctest.Wait() // until the socket is registered
		a, theirs := r.run("me", "a"), r.run("you", "b")
		for range 5000 {
			a.Send(message(Preview, strings.Repeat("p", 1000)))
			a.Send(message(Progress, strings.Repeat("x", 100)))
		}
		require.Equal(t, 2, r.streams.Sockets.Count(), "previews and progress alone do not fill it")
		for range 400 {
			a.Send(other(strings.Repeat("e", 1000)))
			theirs.Send(other("executed"))
		}
		require.Len(t, quick.settled(), 2+400, "nobody else waits")
		time.Sleep(30 * time.Second) // not even the close frame can be written
		synctest.Wait()
		require.Equal(t, 1, r.streams.Sockets.Count())
		a.End(other(success("a")))
		dead.leave()
		p := r.open("/ws?clientId=me")
		got := p.settled()
		require.Equal(t, words(hello(0, "me"), start("a")), got[:2], "the stream is available again")
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

func TestInboundLimit(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		p := r.open("/ws?clientId=me")
		p.settled()
		p.say(websocket.MessageText, strings.Repeat("x", readLimit))
		p.say(websocket.MessageBinary, "x")
		require.Empty(t, p.settled())
		// The write may fail halfway, when the server has closed.
		_ = p.conn.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("x", 5<<20)))
		require.Equal(t, websocket.StatusMessageTooBig, p.closeCode())
	})
}

// A compressed message can be finished at any time and would take up a megabyte until then.
func TestNothingIsCompressed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		conn, resp, err := r.request("/ws?clientId=me", &websocket.DialOptions{CompressionMode: websocket.CompressionContextTakeover})
		require.NoError(t, err)
		require.Empty(t, resp.Header.Get("Sec-WebSocket-Extensions"))
		conn.SetReadLimit(-1)
		p := &peer{t: t, conn: conn, over: make(chan struct{})}
		p.read()
		defer p.leave()
		a := r.run("me", "a")
		long := strings.Repeat("long text ", 100_000)
		a.Send(other(long))
		a.Send(Message{Binary: true, Data: []byte(long)})
		a.Send(Message{Binary: true})
		require.Equal(t, words(hello(0, "me"), start("a"), long, "binary:"+long, "binary:"), p.settled())
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
		require.ErrorIs(t, r.errs[2], ErrFull)
		p.leave()
		synctest.Wait()
		r.open("/ws")
		_, _, err = r.request("/ws", nil)
		require.Error(t, err)
		r.streams.SetLimits(Limits{MaxSockets: 3})
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
		require.Zero(t, r.streams.Sockets.Count())
		deaf.leave()

		// Everything is quiet afterwards.
		a.End()
		r.run("me", "b").End()
		r.streams.Posted(Key{Client: "x"}, time.Now())
		r.streams.Statuses.Changed()
		require.Empty(t, r.streams.clients.clients)
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
		require.Error(t, s.Sockets.Serve(w, r, Ident{}))
		require.GreaterOrEqual(t, w.Code, 400)
	}
	require.Zero(t, s.Sockets.slots.all, "a broken handshake gives its place back")
	require.NoError(t, s.Close(t.Context()))
}

const patience = time.Minute

func TestLargeResults(t *testing.T) {
	t.Parallel()
	r := loopback(t, Options{SpillBytes: 1 << 20, HoldBytes: 2 << 20})
	picture := bytes.Repeat([]byte("0123456789abcdef"), 5<<20/16)
	metadata := `{"node_id": "2", "image_type": "image/png"}`
	flagged := r.dial("/ws?clientId=flagged", nil)
	flagged.announce()
	for range 2 { // its sid, and the answer: the announcement has been read
		_, _, err := flagged.conn.Read(t.Context())
		require.NoError(t, err)
	}
	plain := r.dial("/ws?clientId=plain", &websocket.DialOptions{CompressionMode: websocket.CompressionNoContextTakeover})
	for _, client := range []string{"plain", "flagged"} {
		run := r.run(client, "a")
		for range 2 {
			run.Send(Message{Kind: Result, Binary: true, Data: imageWithMetadata(metadata, string(picture))})
		}
		run.End()
	}
	plain.read()
	flagged.read()
	require.Eventually(t, func() bool { return len(r.delivered()) == 2 }, patience, tick)
	for p, want := range map[*peer][]byte{
		plain:   image(formatPNG, string(picture)),
		flagged: imageWithMetadata(metadata, string(picture)),
	} {
		n := 0
		for _, word := range p.take() {
			if data, ok := strings.CutPrefix(word, "binary:"); ok {
				require.True(t, data == string(want), "not the same bytes") // no diff of 5 MB
				n++
			}
		}
		require.Equal(t, 2, n)
	}
}

func TestReconnectStorm(t *testing.T) {
	t.Parallel()
	const clients, prompts = 8, 20
	r := loopback(t, Options{})
	var all sync.WaitGroup
	for i := range clients {
		id := fmt.Sprint("client", i)
		all.Go(func() { // its prompts, two at a time
			for n := 0; n < prompts; n += 2 {
				r.streams.Posted(Key{Client: id}, time.Now())
				a, b := r.run(id, fmt.Sprint(n)), r.run(id, fmt.Sprint(n+1))
				for range 20 {
					a.Send(message(Progress, "a"))
					b.Send(message(Preview, "b"))
					r.streams.Statuses.Changed(id)
				}
				b.End(other(success(fmt.Sprint(n + 1))))
				a.End(other(success(fmt.Sprint(n))))
			}
		})
		all.Go(func() { // its sockets: closed in order, cut, or taken over
			for n := range 15 {
				p := r.open("/ws?clientId=" + id)
				switch n % 3 {
				case 0:
					p.leave()
				case 1:
					_ = p.conn.CloseNow()
				}
			}
		})
	}
	all.Wait()
	for i := range clients {
		r.open(fmt.Sprint("/ws?clientId=client", i))
	}
	require.Eventually(t, func() bool { return len(r.delivered()) == clients*prompts }, patience, tick)
	seen := map[string]bool{}
	for _, prompt := range r.delivered() {
		require.False(t, seen[prompt], "%s was delivered twice", prompt)
		seen[prompt] = true
	}
}
