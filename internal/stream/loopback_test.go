package stream

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

const patience = time.Minute

func TestDeafClientDelaysNobody(t *testing.T) {
	t.Parallel()
	r := loopback(t, Options{HoldBytes: 8 << 20, KeepAlive: time.Hour}) // messages are counted
	deaf := r.dial("/ws?clientId=deaf", nil)
	peers := make(map[string]*peer)
	for i := range 20 {
		id := fmt.Sprint("quick", i)
		peers[id] = r.open("/ws?clientId=" + id)
	}
	toDeaf := r.run("deaf", "a")
	runs := make(map[string]*Run)
	for id := range peers {
		runs[id] = r.run(id, "a")
	}
	// Far more than the kernel buffers, all at once for everybody.
	for i := range 64 {
		toDeaf.Send(other(strings.Repeat("x", 1<<20)))
		for _, run := range runs {
			run.Send(other(fmt.Sprint("message ", i)))
		}
	}
	for id, p := range peers {
		require.Eventually(t, func() bool { return p.received() == 1+1+64 }, patience, tick, id)
	}
	// It is released in the end, and its stream is available again.
	require.Eventually(t, func() bool { return r.streams.Sockets() == len(peers) }, patience, tick)
	deaf.leave()
	toDeaf.End(other(success("a")))
	p := r.open("/ws?clientId=deaf")
	require.Eventually(t, func() bool { return len(r.delivered()) == 1 }, patience, tick)
	got := p.take()
	require.Equal(t, words(success("a"), status(0), null("a")), got[len(got)-3:])
}

func TestLargeResults(t *testing.T) {
	t.Parallel()
	r := loopback(t, Options{SpillBytes: 4 << 20, HoldBytes: 8 << 20})
	picture := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
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
				require.True(t, data == string(want), "not the same bytes") // no diff of 20 MB
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
					r.streams.StatusChanged(id)
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

func BenchmarkSend(b *testing.B) {
	s := New(Options{})
	defer func() { _ = s.Close(b.Context()) }()
	text := []byte(strings.Repeat("x", 400))
	for _, open := range []bool{true, false} {
		b.Run(fmt.Sprint("open=", open), func(b *testing.B) {
			k := Key{Client: fmt.Sprint(open)}
			s.change(k, true, func(c *client) { c.line.attach(func(item) {}, false) })
			first := s.Begin(k, Attempt{Prompt: "first", Fence: 1})
			run := first
			if !open {
				run = s.Begin(k, Attempt{Prompt: "second", Fence: 1})
			}
			b.ReportAllocs()
			for b.Loop() {
				run.Send(Message{Kind: Progress, Data: text})
			}
			run.Lose()
			first.Lose()
		})
	}
}
