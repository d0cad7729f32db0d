package dispatch

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// line is a TCP proxy before an instance. It can be cut for a while.
type line struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	// blinks is how many connections it will refuse.
	blinks int
	closed bool
}

func newLine(t *testing.T, target string) *line {
	t.Helper()
	listener := loopback.Listen()
	u := must(url.Parse(target))
	l := &line{listener: listener, target: u.Host, conns: map[net.Conn]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			done.Go(func() { l.carry(near) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		l.mu.Lock()
		l.closed = true // one may be accepted that nobody has begun to carry
		l.mu.Unlock()
		l.cut(0)
		done.Wait()
	})
	return l
}

func (l *line) url() string { return "http://" + l.listener.Addr().String() }

// cut ends all connections, and the next ones before they carry anything.
func (l *line) cut(next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blinks = next
	for c := range l.conns {
		c.Close()
	}
}

func (l *line) carry(near net.Conn) {
	defer near.Close()
	l.mu.Lock()
	if l.blinks > 0 || l.closed {
		l.blinks--
		l.mu.Unlock()
		return
	}
	far, err := loopback.Dial(context.Background(), "tcp", l.target)
	if err != nil {
		l.mu.Unlock()
		return
	}
	defer far.Close()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(far, near); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(near, far); ended <- struct{}{} }()
	<-ended
	near.Close()
	far.Close()
	<-ended
	l.mu.Lock()
	delete(l.conns, near)
	delete(l.conns, far)
	l.mu.Unlock()
}

// addOver adds an instance that is reached over a line.
func (b *dispatching) addOver(s *scripted, l *line) {
	name := must(b.fleet.AddStatic(l.url()))
	s.name = name
	b.instances = append(b.instances, s)
	b.fleet.Observe(fleet.InstanceReport{Name: name, URL: l.url(), Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1})
}

// A line to the instance that breaks while the outputs of a finished run are named
// or copied costs neither the run nor its client a result.
func TestLineBreaksWhileOutputsAreCopied(t *testing.T) {
	t.Parallel()
	for name, during := range map[string][]string{"copied": {"GET /view"}, "named": {"GET /view", "HEAD /view"}} {
		for part, half := range map[string]bool{"before the answer": false, "in the middle of it": true} {
			t.Run(name+" "+part, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b := newDispatching(t, 0)
					instance := newScripted(t)
					l := newLine(t, instance.web.URL)
					b.addOver(instance, l)
					var cuts atomic.Int32
					for _, request := range during {
						instance.on(request, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
							if cuts.Add(1) > int32(2*len(during)) {
								next.ServeHTTP(w, r)
								return
							}
							if half {
								whole := httptest.NewRecorder()
								next.ServeHTTP(whole, r)
								maps.Copy(w.Header(), whole.Header())
								w.WriteHeader(whole.Code)
								_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
								_ = http.NewResponseController(w).Flush()
							}
							l.cut(3)
						})
					}
					j := b.reaches(b.submit(picture), job.Done)
					require.Empty(t, j.Lost)
					require.Equal(t, 1, instance.Started(), "it ran once")
					require.Positive(t, cuts.Load())
					require.NotEmpty(t, b.stored(j))
				})
			})
		}
	}
}

// stored returns the bytes of the first output of a job as the hub has stored them.
func (b *dispatching) stored(j job.Job) []byte {
	b.t.Helper()
	e := must(b.store.Resolve(b.t.Context(), job.DefaultTenant, job.FileRef{Type: job.TypeOutput, Filename: "ComfyUI_00001_.png"}))
	require.True(b.t, e.Stored())
	body := must(b.store.Open(b.t.Context(), e, 0, -1))
	defer body.Close()
	data := must(io.ReadAll(body))
	require.Len(b.t, data, int(e.Size))
	return data
}

// A finished run whose instance does not come back runs again, after a while.
func TestInstanceIsGoneWithItsOutputs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1, func(b *dispatching, c *Config) {
			copies := files.NewCollector(b.store, b.fetch, files.CollectorOptions{Patience: files.Patience{Contact: 300 * time.Millisecond}})
			t.Cleanup(copies.Close)
			c.Files = files.NewTransfer(b.store, copies, nil, c.Logger)
		})
		b.instances[0].on("GET /view", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusBadGateway)
		})
		require.Contains(t, b.lost(b.submit(picture)), "an output file cannot be copied")
	})
}

// A client can end a job whose outputs take for ever.
func TestCancelWhileOutputsAreCopied(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		copying, hang := make(chan struct{}, 10), make(chan struct{})
		b.instances[0].on("GET /view", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			copying <- struct{}{}
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		})
		defer close(hang)
		key := b.submit(picture)
		<-copying
		must(b.queue.Cancel(t.Context(), key))
		b.CancelRun(key)
		b.reaches(key, job.Cancelled)
		b.leaves(key)
	})
}
