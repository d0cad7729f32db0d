// The hub inside a running Caddy: what a reload must keep, and what ends when. Caddy's state is
// global to a process, so tests of a site run one after the other.
package caddymodule_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	_ "github.com/comfyhub/comfyhub/caddymodule"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// patience bounds every wait of these tests.
const patience = 4 * time.Minute

// site is a Caddy that serves a hub with one simulated instance.
type site struct {
	t        *testing.T
	api      string // address of ComfyUI's API
	admin    string // address of Caddy's admin endpoint
	gossip   string
	data     string
	instance string // URL
}

// newSite chooses addresses and starts the instance; load starts Caddy.
func newSite(t *testing.T) *site {
	t.Helper()
	server := must.Get(sim.New(sim.Config{Dir: t.TempDir(), LoadTime: time.Nanosecond}))(t)
	web := httptest.NewServer(server.Handler())
	s := &site{t: t, api: freeAddress(t), admin: freeAddress(t), gossip: freeAddress(t), data: t.TempDir(), instance: web.URL}
	t.Cleanup(func() {
		require.NoError(t, caddy.Stop())
		web.CloseClientConnections()
		web.Close()
		server.Close()
	})
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return must.Get(freeport.Address())(t)
}

// load loads a configuration with these lines in the app's block, and blocks
// of other sites after it.
func (s *site) load(lines string, sites ...string) error {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.api)
	require.NoError(s.t, err)
	text := fmt.Sprintf(`{
	admin %s
	persist_config off
	log {
		level ERROR
	}
	comfyhub {
		data %s
		gossip {
			bind %s
		}
		instance %s
		%s
	}
}
http://:%s {
	bind 127.0.0.1
	comfyhub
}
%s
`, s.admin, s.data, s.gossip, s.instance, lines, port, strings.Join(sites, "\n"))
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	require.NoError(s.t, err)
	return caddy.Load(config, true)
}

// start loads the first configuration and waits for the instance.
func (s *site) start(lines string) {
	s.t.Helper()
	require.NoError(s.t, s.load(lines))
	s.ready()
}

// ready waits for the instance.
func (s *site) ready() {
	s.t.Helper()
	s.await(func() bool {
		ready, _ := s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
		_, instances := s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
		return ready == http.StatusOK && strings.Contains(instances, `"idle"`)
	})
}

// await polls until a condition holds. Unlike require.Eventually it does so on
// the test's own goroutine, where a condition may end the test.
func (s *site) await(holds func() bool) {
	s.t.Helper()
	require.True(s.t, programs.Eventually(patience, holds), "still not after %v", patience)
}

// call sends a request and returns status and body.
func (s *site) call(method, address, path, body string, header ...string) (int, string) {
	s.t.Helper()
	var response *http.Response
	s.await(func() bool {
		r := must.Get(http.NewRequestWithContext(s.t.Context(), method, "http://"+address+path, strings.NewReader(body)))(s.t)
		// Each request has its own connection: an idle one would count as a
		// goroutine that a reload left behind.
		r.Close = true
		for pair := range slices.Chunk(header, 2) {
			r.Header.Set(pair[0], pair[1])
		}
		var err error
		response, err = http.DefaultClient.Do(r)
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) {
			// During a reload two listeners share the port. A connection that
			// waits at the closing one is reset by the kernel, or closed
			// unanswered by the server that stops. Caddy does this with any handler.
			return false
		}
		require.NoError(s.t, err)
		return true
	})
	defer response.Body.Close()
	return response.StatusCode, string(must.Get(io.ReadAll(response.Body))(s.t))
}

// prompt posts work that takes some time and returns its id.
func (s *site) prompt(client string, seconds float64, nonce int) string {
	s.t.Helper()
	graph := fmt.Sprintf(`{
		"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %g, "steps": 4, "nonce": %d}},
		"3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}}}`, seconds, nonce)
	status, answer := s.call(http.MethodPost, s.api, "/prompt", `{"prompt": `+graph+`, "client_id": "`+client+`"}`)
	require.Equal(s.t, http.StatusOK, status, answer)
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(answer), &accepted))
	return accepted.ID
}

// metric reads one sample of Caddy's own /metrics, 0 where there is none yet.
func (s *site) metric(sample string) float64 {
	s.t.Helper()
	status, text := s.call(http.MethodGet, s.admin, "/metrics", "")
	require.Equal(s.t, http.StatusOK, status)
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, sample+" "); found {
			return must.Get(strconv.ParseFloat(strings.TrimSpace(value), 64))(s.t)
		}
	}
	return 0
}

// socket is a client's event stream.
type socket struct {
	t    *testing.T
	conn *websocket.Conn
}

func (s *site) dial(client string) *socket {
	s.t.Helper()
	var conn *websocket.Conn
	s.await(func() (opened bool) {
		var err error
		// During a reload it may fail, as in call.
		conn, _, err = websocket.Dial(s.t.Context(), "http://"+s.api+"/ws?clientId="+client, nil)
		return err == nil
	})
	conn.SetReadLimit(-1)
	s.t.Cleanup(func() { conn.CloseNow() })
	return &socket{s.t, conn}
}

// awaitEnd reads until a prompt has ended and returns the types of its events.
func (c *socket) awaitEnd(id string) []string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var types []string
	for {
		kind, frame, err := c.conn.Read(ctx)
		require.NoError(c.t, err, "after %v", types)
		if kind == websocket.MessageBinary {
			continue
		}
		var event struct {
			Type string
			Data map[string]any
		}
		require.NoError(c.t, json.Unmarshal(frame, &event))
		if event.Data["prompt_id"] != id {
			continue
		}
		types = append(types, event.Type)
		if node, told := event.Data["node"]; told && node == nil {
			return types
		}
	}
}
