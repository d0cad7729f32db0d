package e2e

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/image/tiff"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const (
	// silentSenders are as many as one user's browser, scripts and friends never are.
	silentSenders = 200
	// maxSilentGrowth is how much more memory the hub may use for all of them, in bytes, and
	// maxSilentPeak how much more of it may be resident for a moment: with garbage, which is as much
	// again as what is in use, and more while the collector gets little of the processors.
	maxSilentGrowth = 64 << 20
	maxSilentPeak   = 2 * maxSilentGrowth
	// smallWindow is how much a silent sender's system takes of an answer, and smallSegment of
	// that in one packet, in bytes. Both keep the hub's system from taking most of an answer.
	smallWindow, smallSegment = 4 << 10, 536
)

// silent is a way to send a part of something and then nothing, and to read nothing.
type silent struct {
	name string
	// part is what the n-th of them sends.
	part func(f *fleet, n int) []byte
	// then is what it sends once an answer has begun.
	then []byte
	// rest is what all send once the hub has read all parts.
	rest []byte
	// enough reports whether the hub has done what it does for them.
	enough func(heard) bool
}

// taken is enough where the hub reads on: all of what was sent, or until it refuses.
func taken(h heard) bool { return h.unread == 0 }

// allAnswered is enough where the hub's answer is worth something.
func allAnswered(h heard) bool { return h.answered+h.closed == silentSenders }

// hushed are the connections of silent senders.
type hushed struct {
	conns map[string]net.Conn // by the senders' address
	sends sync.WaitGroup
	done  atomic.Int32 // how many have sent everything, if something comes after the answer
}

// hush opens the connections of all senders and begins to send their parts.
func (f *fleet) hush(t *testing.T, s silent) *hushed {
	t.Helper()
	h := &hushed{conns: map[string]net.Conn{}}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, smallWindow)
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, smallSegment)
		})
	}}
	for n := range silentSenders {
		conn, err := d.DialContext(t.Context(), "tcp", f.Addr)
		require.NoError(t, err, "%s: connection %d", s.name, n)
		h.conns[conn.LocalAddr().String()] = conn
		h.sends.Go(func() {
			_, err := conn.Write(s.part(f, n)) // the hub need not take what it will not keep
			if s.then == nil || err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_, _ = conn.Write(s.then)
			h.done.Add(1)
		})
	}
	return h
}

func (h *hushed) leave() {
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	h.sends.Wait()
}

// heard is what has become of silent senders, by their number.
type heard struct {
	unread   int // the hub has not read everything
	waited   int // the hub has read everything, and waits for more
	answered int // the same, and there is an answer
	closed   int // the hub has hung up
}

// count looks at what the system keeps of the connections: what the hub has not read yet, and
// what it has answered.
func (h *hushed) count(f *fleet) (out heard, err error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", f.Hub.PID()))
	if err != nil {
		return heard{}, err
	}
	unread, answered, open := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(table)) {
		var local, remote string
		var n, state, sending, received int
		if _, err := fmt.Sscanf(line, "%d: %s %s %x %x:%x", &n, &local, &remote, &state, &sending, &received); err != nil {
			continue
		}
		from, to := addressOf(local), addressOf(remote)
		switch {
		case to == f.Addr && h.conns[from] != nil: // the sender's end
			open[from] = state == established
			unread[from] = unread[from] || sending > 0
			answered[from] = received > 0
		case from == f.Addr && h.conns[to] != nil:
			unread[to] = unread[to] || received > 0
		}
	}
	for from := range h.conns {
		switch {
		case !open[from]:
			out.closed++
		case unread[from]:
			out.unread++
		case answered[from]:
			out.answered++
		default:
			out.waited++
		}
	}
	return out, nil
}

// established is the number of an open connection's state.
const established = 1

// addressOf is an address as the net package writes it, of one as /proc does, which is zero
// if it cannot be read.
func addressOf(hex string) string {
	var ip, port uint32
	_, _ = fmt.Sscanf(hex, "%x:%x", &ip, &port)
	return net.JoinHostPort(net.IPv4(byte(ip), byte(ip>>8), byte(ip>>16), byte(ip>>24)).String(), fmt.Sprint(port))
}

// await waits until the hub has done enough for the senders.
func (h *hushed) await(t *testing.T, f *fleet, s silent) (out heard) {
	t.Helper()
	require.NoError(t, f.Hub.Await(t.Context(), s.name+" were read", func(context.Context) (err error) {
		done := s.then == nil || h.done.Load() == silentSenders // before it is looked at
		if out, err = h.count(f); err == nil && !(done && s.enough(out)) {
			err = fmt.Errorf("of %d senders: %+v", silentSenders, out)
		}
		return err
	}))
	return out
}

// beside has senders of a kind be silent while the other user works: some rounds, after which
// the hub's memory is looked at, and more of which only the time is of interest.
func (f *fleet) beside(t *testing.T, s silent, rounds, more int) (took []time.Duration, out heard, growth, peak int64) {
	t.Helper()
	before, used := f.settle(t), must.Get(f.inUse(t.Context()))(t)
	h := f.hush(t, s)
	defer h.leave()
	out = h.await(t, f, s)
	if s.rest != nil {
		for _, conn := range h.conns {
			_, _ = conn.Write(s.rest) // the system takes it
		}
		out = h.await(t, f, s)
	}
	took, err := f.rounds(t.Context(), smallPreview, rounds)
	require.NoError(t, err, "the other user's requests beside %s", s.name)
	_, peak = f.Hub.Memory()
	growth = peak - before
	assert.Less(t, growth, int64(maxSilentPeak), "the most memory of the hub for %d times %s", silentSenders, s.name)
	assert.Less(t, must.Get(f.inUse(t.Context()))(t)-used, int64(maxSilentGrowth), "memory of the hub for %d times %s", silentSenders, s.name)
	rest, err := f.rounds(t.Context(), smallPreview, more)
	require.NoError(t, err, "the other user's requests beside %s", s.name)
	return append(took, rest...), out, growth, peak
}

// rounds is so many rounds of the worker's, one after the other.
func (f *fleet) rounds(ctx context.Context, preview string, count int) (took []time.Duration, err error) {
	for n := range count {
		round, err := f.round(ctx, preview, n)
		if took = append(took, round...); err != nil {
			return took, err
		}
	}
	return took, nil
}

const smallPreview = "/view?type=input&filename=small.png&preview=webp;80"

// besieged is a hub with the pictures that the silent ask for and the other user does.
func besieged(t *testing.T) *fleet {
	t.Helper()
	f := siege(t, "passthrough on\n\t\tprimary pack")
	f.agent("pack", "run", "--join", f.Gossip, "--name", "pack", "--comfyui", nodePack(t))
	f.idle(3)
	if err := f.forgetPeak(); err != nil {
		t.Skipf("this system does not tell what a process needs at most: %v", err)
	}
	for name, upload := range map[string]struct {
		user string
		data []byte
	}{"small.png": {worker, deepPNG(8, 8)}, "large.tiff": {attacker, tiffOf(700, 700)}, "noise.tiff": {attacker, tiffOf(400, 400)}} {
		code, answer, err := f.as(t.Context(), upload.user, http.MethodPost, "/upload/image",
			http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, form(name, upload.data))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, "%s: %s", name, answer)
	}
	for name, size := range map[string]int{"noise.json": 1 << 20, "short.json": 100 << 10} {
		code, answer, err := f.as(t.Context(), attacker, http.MethodPost, "/userdata/"+name, nil, strings.NewReader(noiseText(size)))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, "%s: %s", name, answer)
	}
	return f
}

// nodePack is an instance with a custom node that has a socket, and reads what comes.
func nodePack(t *testing.T) string {
	t.Helper()
	instance := must.Get(sim.New(sim.Config{TimeScale: 0.2}))(t)
	t.Cleanup(instance.Close)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { served <- instance.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	return simtest.Front(t, "http://"+ln.Addr().String(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/some/node"):
			rest.ServeHTTP(w, r)
		case r.Header.Get("Upgrade") == "":
			_, _ = io.Copy(io.Discard, r.Body) // whoever sends half of it is gone some day
		default:
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer conn.CloseNow()
			conn.SetReadLimit(-1)
			for err == nil {
				_, _, err = conn.Read(r.Context())
			}
		}
	}).URL
}

// noiseText is text of which little is left out when it is compressed.
func noiseText(size int) string {
	random, text := rand.New(rand.NewPCG(1, 2)), make([]byte, size)
	for n := range text {
		text[n] = byte('0' + random.IntN(64))
	}
	return string(text)
}

// tiffOf is a picture of noise.
func tiffOf(width, height int) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	random := rand.New(rand.NewPCG(1, 2)) // the same each time
	for n := range img.Pix {
		img.Pix[n] = byte(random.Uint32())
	}
	var out bytes.Buffer
	_ = tiff.Encode(&out, img, nil)
	return out.Bytes()
}

// quietly is how long the other user's requests take while nobody else is there. What the hub
// makes once and keeps is made here.
func (f *fleet) quietly(t *testing.T) []time.Duration {
	t.Helper()
	for _, path := range []string{"/object_info", "/system_stats"} {
		code, _, err := f.as(t.Context(), worker, http.MethodGet, path, nil, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, path)
	}
	must.Get(f.rounds(t.Context(), smallPreview, 10))(t)
	return must.Get(f.rounds(t.Context(), smallPreview, 40))(t)
}

// Whatever somebody begins to send many times and does not finish, or does not read, the hub
// needs little memory for it, and another user's requests are answered. How long those take
// is printed.
func TestSilentSenders(t *testing.T) {
	t.Parallel()
	f := besieged(t)
	more := 0
	if os.Getenv(attackVariable) != "" {
		more = 40 // three requests each: of fewer than a hundred, the p99 is the slowest
	}
	quiet := f.quietly(t)
	for _, s := range oneIn(8, silentKinds()) {
		before := must.Get(f.rounds(t.Context(), smallPreview, more))(t)
		quiet = append(quiet, before...)
		took, out, growth, peak := f.beside(t, s, 10, more)
		t.Logf("SILENT name=%q senders=%d heard=%+v p99=%s quiet=%s ratio=%.1f growth=%dMiB peak_rss=%dMiB", s.name, silentSenders, out,
			p99(took).Round(time.Millisecond), p99(quiet).Round(time.Millisecond), float64(p99(took))/float64(p99(quiet)), growth>>20, peak>>20)
	}
}

// The same holds at each route, where all senders stop after the headers and, once the hub
// has read those, in the middle of a body.
func TestSilentAtEveryRoute(t *testing.T) {
	t.Parallel()
	f := besieged(t)
	quiet := f.quietly(t)
	var all []time.Duration
	var most, highest int64
	worst, routes := "", silentRoutes(t)
	visited := oneIn(48, routes)
	for _, s := range visited {
		took, _, growth, peak := f.beside(t, s, 2, 0)
		all, highest = append(all, took...), max(highest, peak)
		if growth > most {
			most, worst = growth, s.name
		}
	}
	t.Logf("SILENT routes=%d of=%d senders=%d p99=%s quiet=%s ratio=%.1f growth=%dMiB worst=%q peak_rss=%dMiB", len(visited), len(routes), silentSenders,
		p99(all).Round(time.Millisecond), p99(quiet).Round(time.Millisecond), float64(p99(all))/float64(p99(quiet)), most>>20, worst, highest>>20)
}
