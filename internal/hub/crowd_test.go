package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// crowd is a set of clients that do the same work well or badly: they read their sockets or do not,
// stay connected or reconnect all the time, send valid messages or garbage.
type crowd struct {
	*bench
	// pace is the time between two results for each reader. Each result has size bytes.
	pace time.Duration
	size int
	sent atomic.Int64 // bytes of results

	wait sync.WaitGroup
	stop context.CancelFunc
	ctx  context.Context
}

// come starts n clients of each kind.
func (c *crowd) come(n int, bad bool) {
	c.ctx, c.stop = context.WithCancel(c.t.Context())
	for i := range n {
		name := fmt.Sprintf("crowd-%t-%d-%d", bad, i, rand.Int())
		c.wait.Go(func() { c.reader(name+"-reader", bad) })
		c.wait.Go(func() { c.comer(name+"-comer", bad) })
		c.wait.Go(func() { c.talker(name+"-talker", bad) })
	}
}

// leave ends them all.
func (c *crowd) leave() {
	c.stop()
	c.wait.Wait()
}

// beat waits for the next turn.
func (c *crowd) beat(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.ctx.Done():
		return false
	}
}

// narrow makes a connection take as little as it can before it blocks its peer.
func narrow(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096) // as much as it helps
	}
	return conn, err
}

func (c *crowd) open(id string) *websocket.Conn {
	conn, _, err := websocket.Dial(c.ctx, c.web.URL+"/ws?clientId="+id, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: narrow}},
	})
	if err != nil {
		return nil // it is over
	}
	conn.SetReadLimit(-1)
	return conn
}

// drain reads a socket until it ends.
func (c *crowd) drain(conn *websocket.Conn) {
	for {
		if _, _, err := conn.Read(c.ctx); err != nil {
			return
		}
	}
}

// reader is sent large results. A bad one never reads them.
func (c *crowd) reader(id string, bad bool) {
	conn := c.open(id)
	if conn == nil {
		return
	}
	defer conn.CloseNow()
	if !bad {
		c.wait.Go(func() { c.drain(conn) })
	}
	// No instance makes these results. On a small machine the test would measure the
	// instance's work.
	for n := 0; c.beat(c.pace); n++ {
		c.hub.streams.Ended(stream.Key{Tenant: job.DefaultTenant, Client: id}, stream.Attempt{Prompt: fmt.Sprint(id, n)},
			stream.Message{Kind: stream.Result, Binary: true, Data: make([]byte, c.size)})
		c.sent.Add(int64(c.size))
	}
}

// comer listens. A bad one reconnects every time, sometimes in the middle of the
// handshake. A good one asks for the queue instead.
func (c *crowd) comer(id string, bad bool) {
	conn := c.open(id)
	for conn != nil {
		c.wait.Go(func() { c.drain(conn) })
		if !c.beat(50 * time.Millisecond) {
			break
		}
		if !bad {
			c.look("/queue")
			continue
		}
		conn.CloseNow()
		if half, err := narrow(c.ctx, "tcp", c.web.Listener.Addr().String()); err == nil {
			fmt.Fprint(half, "GET /ws HTTP/1.1\r\nHost: x\r\nUpgr")
			half.Close()
		}
		conn = c.open(id)
	}
	if conn != nil {
		conn.CloseNow()
	}
}

// garbage is what the bad talker says.
var garbage = []string{
	"", "{", "null", "[[[[[[", `{"prompt": 5}`, `{"prompt": {"1": null}}`, "\xff\xfe\x00", `{"type": "feature_flags", "data": 7}`,
	strings.Repeat(`{"a":`, 5000), `{"prompt": {"1": {"class_type": "` + strings.Repeat("x", 1<<16) + `"}}}`,
}

// talker sends messages over its socket and by POST.
func (c *crowd) talker(id string, bad bool) {
	var conn *websocket.Conn
	for n := 0; c.beat(50 * time.Millisecond); n++ {
		if conn == nil {
			if conn = c.open(id); conn == nil {
				return
			}
			defer conn.CloseNow()
			c.wait.Go(func() { c.drain(conn) })
		}
		word, kind := `{"type": "feature_flags", "data": {}}`, websocket.MessageText
		if bad {
			word, kind = garbage[n%len(garbage)], websocket.MessageType(1+n%2)
		}
		if conn.Write(c.ctx, kind, []byte(word)) != nil {
			conn = nil // the hub has closed the socket
		}
		if bad {
			_ = c.say("/prompt", word)
			_ = c.say("/upload/image", word)
			c.look("/view?filename=" + strings.Repeat("%2e%2e%2f", n%40) + "%00")
			continue
		}
		_ = c.say("/prompt", `{"prompt": {}}`)
		c.look("/history?max_items=1")
		c.look("/view?filename=nothing.png")
	}
}

func (c *crowd) say(path, body string) error {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.web.URL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func (c *crowd) look(path string) {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.web.URL+path, nil)
	if err != nil {
		return
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
}

// Bad clients cost the good one nothing that can be measured without a clock. Its prompts arrive
// whole and in order, and the hub keeps a bounded amount for clients that do not read.
func TestBadClientsDisturbNobody(t *testing.T) { //nolint:paralleltest // measures the memory of the process
	b := newBench(t, 3, func(b *bench) { b.sockets = true })
	c := &crowd{bench: b, pace: 5 * time.Millisecond, size: 1 << 20}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c.come(3, true)
	socket := b.dial("ann")
	const much = 400 << 20 // for three deaf clients: more than any network takes
	for n := 0; n < 30 || c.sent.Load() < much; n++ {
		types := socket.until(b.submit(picture(n+1), "ann"))
		require.Equal(t, "execution_start", types[0])
		require.Equal(t, "execution_success", types[len(types)-2])
	}
	const most = 3*32<<20 + 64<<20 // what may wait for three sockets, plus the rest
	require.Less(t, heap(), before+most)
	c.leave()
	// Only ann is left.
	eventually(t, func() bool { return b.hub.streams.Sockets() == 1 }, time.Minute, 10*time.Millisecond)
	socket.until(b.submit(picture(100), "ann"))
}
