package comfy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/comfy"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// bench is a room on a hub that has one simulated instance.
type bench struct {
	*comfy.Room

	t        testing.TB
	hub      *hub.Hub
	server   *api.Server
	instance *sim.Server
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, "embedded")
}

func newBenchOn(t testing.TB, redis string) *bench {
	t.Helper()
	instance, err := sim.New(sim.Config{TimeScale: 0.02})
	require.NoError(t, err)
	t.Cleanup(instance.Close)
	web := httptest.NewServer(instance.Handler())
	t.Cleanup(web.Close)
	h := hub.New(config.Identity{Redis: redis, Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	all := mount.New(h)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	require.NoError(t, h.Start(t.Context(), config.Settings{Instances: []string{web.URL}, Logger: slog.New(slog.DiscardHandler)}))
	return &bench{Room: all.ComfyUI, t: t, hub: h, server: all.Server, instance: instance}
}

// send makes a request that must succeed.
func (b *bench) send(method, path, body string) string {
	b.t.Helper()
	answer := httptest.NewRecorder()
	b.server.Serve(answer, httptest.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(body)), api.Visitor{IP: "127.0.0.1"})
	require.Equal(b.t, http.StatusOK, answer.Code, "%s %s: %s", method, path, answer.Body)
	return answer.Body.String()
}

// submit posts a graph that runs until it is interrupted, and returns its id.
func (b *bench) submit(nonce int, extra string) string {
	b.t.Helper()
	graph := fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 0}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 720, "fail": "none", "nonce": %d}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, nonce)
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	answer := b.send(http.MethodPost, "/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "c", "extra_data": %s}`, graph, extra))
	require.NoError(b.t, json.Unmarshal([]byte(answer), &accepted), answer)
	return accepted.ID
}

func (b *bench) eventually(condition func() bool) {
	b.t.Helper()
	require.Eventually(b.t, condition, time.Minute, time.Millisecond)
}
