package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// bench is a hub with simulated instances, for tests.
type bench struct {
	t    *testing.T
	hub  *Hub
	web  *httptest.Server
	sims []*sim.Server
}

// newBench starts a hub with embedded queue and count static instances.
func newBench(t *testing.T, count int) *bench {
	t.Helper()
	b := &bench{t: t}
	var addresses []string
	for range count {
		server, err := sim.New(sim.Config{TimeScale: 0.05})
		require.NoError(t, err)
		web := httptest.NewServer(server.Handler())
		t.Cleanup(func() { web.CloseClientConnections(); web.Close(); server.Close() })
		b.sims = append(b.sims, server)
		addresses = append(addresses, web.URL)
	}
	b.hub = New(Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	level := slog.LevelInfo
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: level}))
	require.NoError(t, b.hub.Start(context.Background(), Settings{Instances: addresses, Logger: logger}))
	b.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.hub.Serve(w, r, Visitor{IP: "127.0.0.1"})
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, b.hub.Close(ctx))
		b.web.Close()
	})
	require.Eventually(t, func() bool { return len(b.hub.dispatch.Clients()) == count }, 20*time.Second, 10*time.Millisecond)
	return b
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (b *bench) get(path string) (int, []byte) {
	b.t.Helper()
	resp, err := http.Get(b.web.URL + path)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, body
}

func (b *bench) post(path, body string) (int, []byte) {
	b.t.Helper()
	resp, err := http.Post(b.web.URL+path, "application/json", strings.NewReader(body))
	require.NoError(b.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, answer
}

func (b *bench) dial(client string) *websocket.Conn {
	b.t.Helper()
	conn, _, err := websocket.Dial(b.t.Context(), b.web.URL+"/ws?clientId="+client, nil)
	require.NoError(b.t, err)
	conn.SetReadLimit(-1)
	b.t.Cleanup(func() { conn.CloseNow() })
	return conn
}

const picture = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 16711680}},
	"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}}}`

func TestPictureThroughTheHub(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	socket := b.dial("ann")
	status, answer := b.post("/prompt", `{"prompt": `+picture+`, "client_id": "ann"}`)
	require.Equal(t, http.StatusOK, status, string(answer))
	var accepted struct {
		ID string `json:"prompt_id"`
	}
	require.NoError(t, json.Unmarshal(answer, &accepted))

	var types []string
	for {
		kind, frame, err := socket.Read(t.Context())
		require.NoError(t, err)
		if kind == websocket.MessageBinary {
			continue
		}
		var m struct {
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		}
		require.NoError(t, json.Unmarshal(frame, &m))
		if m.Type != "status" {
			types = append(types, m.Type)
			require.Equal(t, accepted.ID, m.Data["prompt_id"], string(frame))
		}
		if node, ok := m.Data["node"]; ok && node == nil {
			break
		}
	}
	require.Equal(t, "execution_start", types[0])
	require.Equal(t, "execution_success", types[len(types)-2])

	_, body := b.get("/history/" + accepted.ID)
	var history map[string]struct {
		Outputs map[string]struct {
			Images []struct{ Filename, Subfolder, Type string }
		}
		Prompt []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(body, &history))
	image := history[accepted.ID].Outputs["2"].Images[0]
	require.Equal(t, "ComfyUI_00001_.png", image.Filename)
	status, body = b.get("/view?filename=" + image.Filename + "&type=" + image.Type)
	require.Equal(t, http.StatusOK, status)
	decoded, err := png.Decode(bytes.NewReader(body))
	require.NoError(t, err)
	require.Equal(t, 64, decoded.Bounds().Dx())
}
