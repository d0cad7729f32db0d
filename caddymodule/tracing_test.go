package caddymodule_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	id, err := hex.DecodeString(trace)
	require.NoError(t, err)
	require.True(t, c.has(id))
	require.False(t, c.has([]byte("secret")))
	require.False(t, c.has([]byte("job-2")), "the id is the client's")
}
