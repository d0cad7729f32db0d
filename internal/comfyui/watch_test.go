package comfyui

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// witness collects what Watch reports.
type witness struct {
	mu   sync.Mutex
	seen []Observation
}

func (w *witness) notify(o Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, o)
}

func (w *witness) last() Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return Observation{}
	}
	return w.seen[len(w.seen)-1]
}

func (w *witness) all() []Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Observation(nil), w.seen...)
}

func (w *witness) await(t *testing.T, what string, ok func(Observation) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return ok(w.last()) }, time.Minute, time.Millisecond, what)
}

func startWatch(t *testing.T, url string, o WatchOptions) *witness {
	t.Helper()
	if o.MinBackoff == 0 {
		o.MinBackoff, o.MaxBackoff = 5*time.Millisecond, 20*time.Millisecond
	}
	w := &witness{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	c := newTestClient(t, url)
	go func() { defer close(done); Watch(ctx, c, o, w.notify) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func TestWatchFollowsTheQueue(t *testing.T) {
	f := newFakeServer(t)
	w := startWatch(t, f.URL, WatchOptions{})
	w.await(t, "up with its object_info", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash != "" })
	o := w.last()
	require.Equal(t, "0.3.64", o.Version.String())
	require.Equal(t, "cuda:0 Fake", o.GPU)
	require.Equal(t, "cuda", o.GPUType)
	require.EqualValues(t, 100, o.VRAMTotal)
	require.EqualValues(t, 60, o.VRAMFree)
	require.Equal(t, HashObjectInfo([]byte(`{"A": {"x": NaN}}`)), o.ObjectInfoHash)
	require.NotZero(t, o.Boot)
	require.False(t, o.Since.IsZero())

	f.set([]string{ours("a")}, nil)
	w.await(t, "ours runs", func(o Observation) bool {
		return o.Up && !o.Idle() && o.Running == "a" && o.RunningMark == Mark{Job: "job-a", Fence: 12} && o.Foreign == 0
	})
	f.set([]string{ours("a")}, []string{theirs("b"), theirs("c")})
	w.await(t, "foreign ones wait", func(o Observation) bool { return o.QueueRemaining == 3 && o.Foreign == 2 })
	f.set([]string{theirs("b")}, nil)
	w.await(t, "a foreign one runs", func(o Observation) bool {
		return o.QueueRemaining == 1 && o.Foreign == 1 && o.Running == "b" && !o.RunningMark.Ours()
	})
	f.set(nil, nil)
	w.await(t, "idle", func(o Observation) bool { return o.Idle() && o.Foreign == 0 && o.Running == "" })
}

// Short prompts in a row cost few reports, each of which says what runs. However they are coalesced, the
// last one is the truth.
func TestWatchPausesBetweenLooks(t *testing.T) {
	f := newFakeServer(t)
	w := startWatch(t, f.URL, WatchOptions{})
	w.await(t, "up with its object_info", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash != "" })
	before, began := len(w.all()), time.Now()
	for i := range 500 {
		f.set([]string{ours(fmt.Sprint(i))}, []string{theirs("x")})
		f.set(nil, nil)
	}
	f.set([]string{ours("last")}, nil)
	w.await(t, "the last one", func(o Observation) bool { return o.QueueRemaining == 1 && o.Running == "last" && o.Foreign == 0 })
	seen := w.all()[before:]
	require.LessOrEqual(t, len(seen), 2+2*int(time.Since(began)/lookPause))
	f.set(nil, nil)
	w.await(t, "idle", Observation.Idle)
}

func TestWatchSurvivesALostSocket(t *testing.T) {
	f := newFakeServer(t)
	w := startWatch(t, f.URL, WatchOptions{})
	w.await(t, "up", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash != "" })
	boot := w.last().Boot
	f.dropSockets()
	f.set([]string{ours("a")}, nil)
	w.await(t, "the queue is seen over the next socket", func(o Observation) bool { return o.Running == "a" })
	for _, o := range w.all()[1:] {
		require.True(t, o.Up, "a lost socket alone is not the end of the server")
		require.Equal(t, boot, o.Boot)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Len(t, f.sids, 2)
	require.NotEqual(t, f.sids[0], f.sids[1], "a sid is never used twice")
	require.Equal(t, 1, f.infos, "the same process needs not be read again")
}

func TestWatchSeesARestart(t *testing.T) {
	f := newFakeServer(t)
	w := startWatch(t, f.URL, WatchOptions{})
	f.set([]string{ours("a")}, nil)
	w.await(t, "up and busy", func(o Observation) bool { return o.Running == "a" && o.ObjectInfoHash != "" })
	boot := w.last().Boot
	address := f.Listener.Addr().String()
	f.stop()
	w.await(t, "down", func(o Observation) bool { return !o.Up && o.Reason == "connection refused" })
	o := w.last()
	require.Zero(t, o.QueueRemaining)
	require.Empty(t, o.Running)
	require.Equal(t, "0.3.64", o.Version.String(), "what was known stays known")

	listener := must.Get(net.Listen("tcp", address))(t)
	next := &fakeServer{sockets: map[*websocket.Conn]string{}}
	server := &http.Server{Handler: next}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer func() { next.dropSockets(); server.Close() }()
	w.await(t, "up again", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash != "" })
	require.Greater(t, w.last().Boot, boot, "another process")
	next.mu.Lock()
	defer next.mu.Unlock()
	require.Equal(t, 1, next.infos)
}

func TestWatchStartsBeforeTheServer(t *testing.T) {
	t.Parallel()
	w := startWatch(t, refusedURL(t), WatchOptions{})
	w.await(t, "down with a reason", func(o Observation) bool { return !o.Up && o.Reason == "connection refused" })
}

func TestWatchRefusesAHub(t *testing.T) {
	f := newFakeServer(t)
	f.answer(func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Set(HubHeader, "1"); return false })
	w := startWatch(t, f.URL, WatchOptions{})
	w.await(t, "refused", func(o Observation) bool { return !o.Up && o.Reason == ErrHub.Error() })
}

// A socket whose id was stolen stays open and silent for ever.
func TestWatchNoticesADeafSocket(t *testing.T) {
	f := newFakeServer(t)
	w := startWatch(t, f.URL, WatchOptions{CheckEvery: 5 * time.Millisecond})
	w.await(t, "up", Observation.Idle)
	f.mu.Lock()
	f.deaf = true
	f.mu.Unlock()
	f.set([]string{theirs("x")}, nil)
	w.await(t, "found out by asking", func(o Observation) bool { return o.QueueRemaining == 1 && o.Foreign == 1 })
}

// A machine that lost its power refuses nothing: it only stops answering.
func TestWatchNoticesSilence(t *testing.T) {
	f := newFakeServer(t)
	w := startWatch(t, f.URL, WatchOptions{CheckEvery: 5 * time.Millisecond, CallTimeout: 200 * time.Millisecond})
	w.await(t, "up", Observation.Idle)
	release := make(chan struct{})
	f.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	})
	w.await(t, "down", func(o Observation) bool { return !o.Up && o.Reason == "no answer in time" })
	f.answer(nil)
	close(release)
	w.await(t, "and back", Observation.Idle)
}

// object_info may fail while the server warms up; it is asked for again.
func TestWatchRetriesObjectInfo(t *testing.T) {
	f := newFakeServer(t)
	f.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/object_info" {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	bodies := make(chan string, 10)
	w := startWatch(t, f.URL, WatchOptions{
		CheckEvery: 5 * time.Millisecond, ObjectInfoEvery: 5 * time.Millisecond,
		ObjectInfo: func(_ string, body []byte) {
			select {
			case bodies <- string(body):
			default:
			}
		},
	})
	w.await(t, "up without it", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash == "" })
	f.answer(nil)
	w.await(t, "up with it", func(o Observation) bool { return o.ObjectInfoHash != "" })
	require.Equal(t, `{"A": {"x": NaN}}`, <-bodies)
	require.Equal(t, `{"A": {"x": NaN}}`, <-bodies, "read again while idle: models come without notice")
}

// A server that hangs while it is idle is not up until it answers again, and it is the same
// process then. One that hangs while it works is only late.
func TestWatchNoticesAHang(t *testing.T) {
	type row struct {
		running []string
		down    bool
	}
	beside.Cases(t, map[string]row{
		"idle":    {nil, true},
		"at work": {[]string{ours("a")}, false},
	}, func(t *testing.T, c row) {
		loopback.Test(t, func(t *testing.T) {
			answers := make(chan struct{}) // closed when it answers
			f := &fakeServer{sockets: map[*websocket.Conn]string{}, running: c.running}
			f.handle = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/ws" {
					return false
				}
				conn, err := websocket.Accept(w, r, nil)
				if err == nil {
					err = conn.Write(r.Context(), websocket.MessageText, statusMessage(len(c.running), "sid"))
				}
				<-answers
				for err == nil {
					_, _, err = conn.Read(r.Context())
				}
				return true
			}
			server := loopback.Serve(f)
			defer server.Close()
			client := must.Get(NewClient(server.URL, Options{Dial: loopback.Dial}))(t)
			defer client.Close()
			w, done := &witness{}, make(chan struct{})
			ctx, stop := context.WithCancel(t.Context())
			go func() { defer close(done); Watch(ctx, client, WatchOptions{}, w.notify) }()
			<-time.After(QuietAfter + lateAfter - time.Millisecond)
			require.True(t, w.last().Up)
			boot := w.last().Boot
			<-time.After(2 * time.Millisecond)
			require.Equal(t, !c.down, w.last().Up)
			if c.down {
				require.Equal(t, "no answer in time", w.last().Reason)
			}
			<-time.After(5 * time.Second)
			close(answers)
			<-time.After(time.Millisecond)
			require.True(t, w.last().Up)
			require.Empty(t, w.last().Reason)
			require.Equal(t, boot, w.last().Boot)
			stop()
			<-done
		})
	})
}

func timeOf(m Message) time.Time { return time.UnixMilli(int64(m.Float("timestamp"))) }
