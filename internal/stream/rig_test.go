package stream

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is a web server with streams behind it. Its network is in memory, so that it
// works inside a synctest bubble, or real loopback TCP.
type rig struct {
	t       *testing.T
	streams *Streams
	dialer  func(ctx context.Context, network, addr string) (net.Conn, error)
	addr    string
	ident   Ident
	// late holds back what comes after the handshake of sockets with ?late.
	late chan struct{}

	mu     sync.Mutex
	errs   []error // of Serve
	counts map[string]int
	asked  int
	fail   error
	slow   chan struct{} // counting blocks until it is closed; nil for not at all
	done   []string      // prompts delivered
}

// bubble runs a test under a fake clock with a rig in memory.
func bubble(t *testing.T, o Options, test func(t *testing.T, r *rig)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pipe := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		r := newRig(t, o, pipe)
		r.dialer = pipe.dial
		test(t, r)
	})
}

// loopback makes a rig on real TCP.
func loopback(t *testing.T, o Options) *rig {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	r := newRig(t, o, listener)
	r.dialer = (&net.Dialer{}).DialContext
	return r
}

func newRig(t *testing.T, o Options, listener net.Listener) *rig {
	r := &rig{t: t, addr: listener.Addr().String(), counts: map[string]int{}}
	if o.SpillDir == "" {
		o.SpillDir = t.TempDir()
	}
	o.Count = r.count
	o.Delivered = func(k Key, prompt string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = append(r.done, k.Client+"/"+prompt)
	}
	r.streams = New(o)
	server := &http.Server{Handler: http.HandlerFunc(r.serve)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		require.NoError(t, r.streams.Close(context.Background()))
		require.NoError(t, server.Close())
		serving.Wait()
	})
	return r
}

func (r *rig) serve(w http.ResponseWriter, req *http.Request) {
	id := r.ident
	id.Client = req.URL.Query().Get("clientId")
	if id.Caller == "" {
		id.Caller = id.Client
	}
	if gate := r.late; gate != nil && req.URL.Query().Has("late") {
		w = &lateWriter{ResponseWriter: w, gate: gate}
	}
	err := r.streams.Sockets.Serve(w, req, id)
	if errors.Is(err, ErrFull) || errors.Is(err, ErrClosed) || errors.Is(err, ErrCutOff) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// lateWriter blocks after the handshake until gate is closed.
type lateWriter struct {
	http.ResponseWriter
	gate     chan struct{}
	hijacked atomic.Bool
}

func (w *lateWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked.Store(true)
	return w.ResponseWriter.(http.Hijacker).Hijack()
}

func (w *lateWriter) Header() http.Header {
	if w.hijacked.Load() {
		<-w.gate
	}
	return w.ResponseWriter.Header()
}

func (r *rig) count(ctx context.Context, caller string) (int, error) {
	r.mu.Lock()
	slow := r.slow
	r.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.counts[caller], r.fail
}

func (r *rig) setCount(caller string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[caller] = n
}

func (r *rig) delivered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.done...)
}

// request opens a socket at a path and returns the raw answer.
func (r *rig) request(path string, o *websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	if o == nil {
		o = &websocket.DialOptions{}
	}
	transport := &http.Transport{DialContext: r.dialer}
	defer transport.CloseIdleConnections()
	o.HTTPClient = &http.Client{Transport: transport}
	conn, resp, err := websocket.Dial(context.Background(), "ws://"+r.addr+path, o)
	return conn, resp, err
}

// dial opens a socket that does not read yet.
func (r *rig) dial(path string, o *websocket.DialOptions) *peer {
	conn, _, err := r.request(path, o)
	require.NoError(r.t, err)
	conn.SetReadLimit(-1)
	p := &peer{t: r.t, conn: conn, over: make(chan struct{})}
	r.t.Cleanup(func() { _ = conn.CloseNow(); p.reading.Wait() })
	return p
}

// open opens a socket that reads all the time.
func (r *rig) open(path string) *peer {
	p := r.dial(path, nil)
	p.read()
	return p
}

// run begins a run and sends its start.
func (r *rig) run(client, prompt string) *Run {
	run := r.streams.Begin(Key{Client: client}, Attempt{Prompt: prompt, Fence: 1})
	run.Send(other(start(prompt)))
	return run
}

func start(prompt string) string {
	return `{"type": "execution_start", "data": {"prompt_id": "` + prompt + `", "timestamp": 1795226193538}}`
}

func success(prompt string) string {
	return `{"type": "execution_success", "data": {"prompt_id": "` + prompt + `", "timestamp": 1795226194143}}`
}

func status(n int) string { return string(statusMessage(n, "")) }

func hello(n int, sid string) string { return string(statusMessage(n, sid)) }

// peer is the client's end of a socket.
type peer struct {
	t       *testing.T
	conn    *websocket.Conn
	reading sync.WaitGroup
	over    chan struct{} // closed when reading has ended

	mu  sync.Mutex
	got []string
	err error
}

// read starts to read everything.
func (p *peer) read() {
	p.reading.Go(func() {
		defer close(p.over)
		for {
			kind, data, err := p.conn.Read(context.Background())
			p.mu.Lock()
			if err != nil {
				p.err = err
				p.mu.Unlock()
				return
			}
			word := string(data)
			if kind == websocket.MessageBinary {
				word = "binary:" + word
			}
			p.got = append(p.got, word)
			p.mu.Unlock()
		}
	})
}

// take returns what has arrived since the last take.
func (p *peer) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

// received returns how many messages there are to take.
func (p *peer) received() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got)
}

// settled waits, inside a bubble, until everything is idle, and then takes.
func (p *peer) settled() []string {
	synctest.Wait()
	return p.take()
}

func (p *peer) say(kind websocket.MessageType, text string) {
	require.NoError(p.t, p.conn.Write(context.Background(), kind, []byte(text)))
}

func (p *peer) announce() {
	p.say(websocket.MessageText, `{"type":"feature_flags","data":{"supports_preview_metadata":true}}`)
}

// closeCode waits for the end of reading and returns the code of the close frame.
func (p *peer) closeCode() websocket.StatusCode {
	<-p.over
	p.mu.Lock()
	defer p.mu.Unlock()
	return websocket.CloseStatus(p.err)
}

// leave closes the socket in order.
func (p *peer) leave() {
	_ = p.conn.Close(websocket.StatusNormalClosure, "")
	p.reading.Wait()
}

// pipeListener is a network in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

const tick = time.Millisecond

// seedOf returns the seed of a model: the same one each time, or COMFYHUB_SEED.
func seedOf(t *testing.T) uint64 {
	text := os.Getenv("COMFYHUB_SEED")
	if text == "" {
		return 1
	}
	return must(strconv.ParseUint(text, 10, 64))
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
