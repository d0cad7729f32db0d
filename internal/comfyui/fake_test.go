package comfyui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// fakeServer plays just enough of ComfyUI to be watched: a queue count, status
// messages, and answers that a test can break.
type fakeServer struct {
	*httptest.Server

	mu      sync.Mutex
	sockets map[*websocket.Conn]string
	sids    []string
	running []string // raw queue items
	pending []string
	// deaf stops the status messages, as a stolen socket does.
	deaf  bool
	infos int
	// handle answers first where it returns true.
	handle func(http.ResponseWriter, *http.Request) bool
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	f := &fakeServer{sockets: map[*websocket.Conn]string{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.stop)
	return f
}

// stop ends the server as a killed process would.
func (f *fakeServer) stop() {
	f.dropSockets()
	f.Server.CloseClientConnections()
	f.Server.Close()
}

func (f *fakeServer) dropSockets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.sockets {
		_ = c.CloseNow()
	}
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	handle := f.handle
	f.mu.Unlock()
	if handle != nil && handle(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/ws":
		f.mu.Unlock()
		f.serveSocket(w, r)
		f.mu.Lock()
	case "/system_stats":
		fmt.Fprint(w, `{"system": {"comfyui_version": "0.3.64", "argv": ["main.py"]}, "devices": [{"name": "cuda:0 Fake", "type": "cuda", "vram_total": 100, "vram_free": 60.5}]}`)
	case "/object_info":
		f.infos++
		fmt.Fprint(w, `{"A": {"x": NaN}}`)
	case "/queue":
		fmt.Fprintf(w, `{"queue_running": [%s], "queue_pending": [%s]}`, strings.Join(f.running, ", "), strings.Join(f.pending, ", "))
	case "/prompt":
		fmt.Fprintf(w, `{"exec_info": {"queue_remaining": %d}}`, len(f.running)+len(f.pending))
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeServer) serveSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	// Whatever ended it: a proxy in between waits for this side too.
	defer conn.CloseNow()
	sid := r.URL.Query().Get("clientId")
	f.mu.Lock()
	f.sockets[conn] = sid
	f.sids = append(f.sids, sid)
	n := len(f.running) + len(f.pending)
	f.mu.Unlock()
	_ = conn.Write(context.Background(), websocket.MessageText, statusMessage(n, sid))
	for {
		if _, _, err := conn.Read(context.Background()); err != nil {
			break
		}
	}
	f.mu.Lock()
	delete(f.sockets, conn)
	f.mu.Unlock()
}

// set changes the queue and tells all sockets.
func (f *fakeServer) set(running, pending []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running, f.pending = running, pending
	if f.deaf {
		return
	}
	for c := range f.sockets {
		_ = c.Write(context.Background(), websocket.MessageText, statusMessage(len(running)+len(pending), ""))
	}
}

func (f *fakeServer) answer(handle func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = handle
}

func newTestClient(t *testing.T, url string) *Client {
	t.Helper()
	c, err := NewClient(url, Options{HeaderTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// ours and theirs are queue items.
func ours(id string) string {
	return fmt.Sprintf(`[1, %q, {"1": {}}, {"client_id": "c", "comfyhub": {"job": "job-%s", "fence": 12}}, ["1"]]`, id, id)
}

func theirs(id string) string {
	return fmt.Sprintf(`[2.5, %q, {"1": {"x": NaN}}, {"client_id": "c"}, ["1"]]`, id)
}

// refusedURL is an address at which nothing listens.
func refusedURL(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

// statusMessage is what a server tells its sockets; sid is in the first one only.
func statusMessage(remaining int, sid string) []byte {
	if sid != "" {
		sid = fmt.Sprintf(`, "sid": %q`, sid)
	}
	return fmt.Appendf(nil, `{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": %d}}%s}}`, remaining, sid)
}
