package caddymodule_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const done = `comfyhub_jobs_total{outcome="done"}`

// After a reload in the middle of a run the socket, the run and the counters
// are still there, and the new settings hold.
func TestReloadKeepsWhatIsGoingOn(t *testing.T) {
	s := newSite(t)
	s.start("max_upload 1MiB")
	socket := s.dial("ann")

	first := s.prompt("ann", 0.1, 1)
	socket.awaitEnd(first)
	s.await(func() bool { return s.metric(done) == 1 })

	second := s.prompt("ann", 5, 2)
	s.await(func() bool { return s.metric("comfyhub_jobs_running") == 1 })
	require.NoError(t, s.load("max_upload 1KiB"))
	// More than 1 where the reload takes as long as the run.
	require.GreaterOrEqual(t, s.metric(done), 1.0, "counters go on")
	require.InDelta(t, 1, s.metric("comfyhub_sockets"), 0)
	// The new settings hold, as soon as the old server accepts nothing more.
	s.await(func() bool { return s.postSized(2<<10) == http.StatusRequestEntityTooLarge })

	types := socket.awaitEnd(second)
	require.Contains(t, types, "execution_success")
	require.Equal(t, 1, count(types, "execution_start"), "the run was not lost")
	s.await(func() bool { return s.metric(done) == 2 })
}

// A configuration that cannot start leaves no trace in the one that serves.
// Apps start in random order, so it is tried often: with the hub's app before
// and after the one that fails.
func TestFailedReloadIsHarmless(t *testing.T) {
	s := newSite(t)
	s.start("max_upload 1MiB")
	socket := s.dial("ann")
	for range 10 {
		// 192.0.2.0/24 is for documentation: nobody can listen there.
		err := s.load("max_upload 1KiB", "http://:8188 {\n\tbind 192.0.2.1\n\trespond ok\n}")
		require.Error(t, err)
		require.NotEqual(t, http.StatusRequestEntityTooLarge, s.postSized(2<<10), "the old settings hold")
		ready, answer := s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
		require.Equal(t, http.StatusOK, ready, answer)
	}
	require.ErrorContains(t, s.load("max_upload 1KiB\nkeda localhost:9190 {\n\ttls /dev/null/a /dev/null/b\n\tclients /dev/null/c\n}"), "keda: ")
	require.NotEqual(t, http.StatusRequestEntityTooLarge, s.postSized(2<<10), "the old settings hold")
	socket.awaitEnd(s.prompt("ann", 0.1, 1))
}

// What makes the hub another one while the old one holds the port is refused
// with the way out.
func TestChangedIdentityNeedsARestart(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	old := s.data
	s.data = t.TempDir()
	require.ErrorContains(t, s.load(""), "restart instead of reloading")
	s.data = old
	socket.awaitEnd(s.prompt("ann", 0.1, 1))
}

// A hub that shares nothing with the old one takes over, and the old one says
// goodbye.
func TestAnotherHubTakesOver(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	goodbye := socket.closing()
	s.data, s.gossip = t.TempDir(), freeAddress(t)
	s.start("")
	require.Equal(t, websocket.StatusGoingAway, <-goodbye)
	s.dial("ann").awaitEnd(s.prompt("ann", 0.1, 1))
}

func TestManyReloadsLeakNothing(t *testing.T) {
	s := newSite(t)
	s.start("")
	socket := s.dial("ann")
	require.NoError(t, s.load("")) // what only the second configuration starts
	before := settled(t)
	for range 100 {
		require.NoError(t, s.load(""))
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+3 }, patience, 100*time.Millisecond,
		"%d goroutines before, %d after", before, runtime.NumGoroutine())
	socket.awaitEnd(s.prompt("ann", 0.1, 1))
}

// settled waits until the number of goroutines stays the same, and returns it.
func settled(t *testing.T) int {
	t.Helper()
	last, same := 0, 0
	require.Eventually(t, func() bool {
		now := runtime.NumGoroutine()
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same == 5
	}, patience, 100*time.Millisecond)
	return last
}

// postSized posts a prompt of so many bytes that is not JSON, and returns the
// status: 413 if that is too large, otherwise what ComfyUI answers.
func (s *site) postSized(bytes int) int {
	s.t.Helper()
	status, _ := s.call(http.MethodPost, s.api, "/prompt", strings.Repeat("x", bytes))
	return status
}

// closing reads until the socket is closed and hands over the status.
func (c *socket) closing() <-chan websocket.StatusCode {
	status := make(chan websocket.StatusCode, 1)
	go func() {
		for {
			if _, _, err := c.conn.Read(c.t.Context()); err != nil {
				status <- websocket.CloseStatus(err)
				return
			}
		}
	}()
	return status
}

func count(types []string, wanted string) (n int) {
	for _, t := range types {
		if t == wanted {
			n++
		}
	}
	return n
}

// A configuration loads while Redis is away, and again, and serves once it is there.
func TestLoadWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	s := newSite(t)
	for _, limit := range []string{"max_upload 1MiB", "max_upload 1KiB"} {
		require.NoError(t, s.load("redis "+server.URL()+"\n"+limit))
		status, answer := s.call(http.MethodGet, s.api, "/queue", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, answer, `"type": "starting"`)
		status, answer = s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, answer, "redis: unavailable")
		status, answer = s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
		require.Equal(t, http.StatusOK, status, answer)
		for _, path := range []string{"/comfyhub/rotate-keys", "/comfyhub/forget?agent=none"} {
			status, answer = s.call(http.MethodPost, s.admin, path, "")
			require.Equal(t, http.StatusServiceUnavailable, status, answer)
		}
	}
	server.Start()
	s.ready()
	s.dial("ann").awaitEnd(s.prompt("ann", 0.1, 1))
	require.Equal(t, http.StatusRequestEntityTooLarge, s.postSized(2<<10), "the second configuration is in force")
}

// collector takes spans over OTLP, as protobuf: ids and names stand in it as they are.
type collector struct {
	*httptest.Server
	mu  sync.Mutex
	got []byte
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got = append(c.got, body...)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) has(what []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.got, what)
}

// A request that Caddy traces has the spans of its job, in the trace that its client has begun.
// Without the hub's word for it Caddy's are the only ones, and a reload is enough to change that.
func TestTracesOfAJob(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	s := newSite(t)
	traced := freeAddress(t)
	site := fmt.Sprintf("http://%s {\n\ttracing {\n\t\tspan caddys\n\t}\n\tcomfyhub\n}", traced)
	require.NoError(t, s.load("", site))
	s.ready()
	socket := s.dial("ann")
	run := func(seed int) {
		graph := fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "secret"}}}`, seed)
		status, answer := s.call(http.MethodPost, traced, "/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "ann", "prompt_id": "job-%d"}`, graph, seed),
			"Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		require.Equal(t, http.StatusOK, status, answer)
		socket.awaitEnd(fmt.Sprintf("job-%d", seed))
	}
	run(1)
	s.await(func() bool { return c.has([]byte("caddys")) })
	require.False(t, c.has([]byte("comfyhub.")))
	require.NoError(t, s.load("tracing on", site))
	run(2)
	for _, name := range []string{"queue", "attempt", "claim", "inputs", "submit", "run", "collect", "finish"} {
		s.await(func() bool { return c.has([]byte("comfyhub." + name)) })
	}
	require.True(t, c.has(must.Get(hex.DecodeString(trace))(t)))
	require.False(t, c.has([]byte("secret")))
	require.False(t, c.has([]byte("job-2")), "the id is the client's")
}

// A site below a path gives URLs that lead back to it, whether this Caddy has taken the path
// off or a proxy that it knows; nobody else has a say.
func TestSiteBelowAPath(t *testing.T) {
	s := newSite(t)
	below := freeAddress(t)
	_, port, err := net.SplitHostPort(below)
	require.NoError(t, err)
	require.NoError(t, s.load("", fmt.Sprintf(`http://:%s {
	bind 127.0.0.1
	redir /comfyui /comfyui/
	handle_path /comfyui/* {
		comfyhub
	}
	respond 404
}`, port)))
	s.ready()

	const stranger, lie = "X-Forwarded-Prefix", "/evil"
	const workflow = `{"workflow": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "a b"}}}}`
	status, answer := s.call(http.MethodPost, below, "/comfyui/submit", workflow, stranger, lie)
	require.Less(t, status, 300, answer)
	var submitted struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(answer), &submitted))
	for address, base := range map[string]string{below: "/comfyui", s.api: ""} {
		status, answer = s.call(http.MethodGet, address, base+"/wait/"+submitted.ID, "", stranger, lie)
		require.Equal(t, http.StatusOK, status, answer)
		var ended struct {
			Result struct {
				Files []struct{ Filename, URL string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(answer), &ended))
		require.Len(t, ended.Result.Files, 1, answer)
		path, found := strings.CutPrefix(ended.Result.Files[0].URL, "http://"+address)
		require.True(t, found, ended.Result.Files[0].URL)
		require.True(t, strings.HasPrefix(path, base+"/view?"), path)
		status, _ = s.call(http.MethodGet, address, path, "")
		require.Equal(t, http.StatusOK, status, path)

		status, answer = s.call(http.MethodPost, address, base+"/hub/files", fmt.Sprintf(`{"filename": %q}`, ended.Result.Files[0].Filename), stranger, lie)
		require.Equal(t, http.StatusOK, status, answer)
		var link struct{ URL string }
		require.NoError(t, json.Unmarshal([]byte(answer), &link))
		require.True(t, strings.HasPrefix(link.URL, base+"/hub/files/"), link.URL)
		status, _ = s.call(http.MethodGet, address, link.URL, "")
		require.Equal(t, http.StatusOK, status, link.URL)

		_, answer = s.call(http.MethodGet, address, base+"/hub/v1/openapi.json", "", stranger, lie)
		require.Contains(t, answer, `"servers": [{"url": "`+base+`/hub/v1"}]`)
		conn, _, err := websocket.Dial(t.Context(), "http://"+address+base+"/ws?clientId=a", nil)
		require.NoError(t, err)
		require.NoError(t, conn.CloseNow())
		status, _ = s.call(http.MethodGet, address, base+"/hub", "")
		require.Equal(t, http.StatusOK, status, "redirects to the dashboard")
	}
}
