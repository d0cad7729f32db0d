package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// keptAgent is an agent that notes what hubs keep.
type keptAgent struct {
	mu     sync.Mutex
	status int
	asked  int
	files  []comfyui.KeptFile
}

func (a *keptAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.status != 0 {
		w.WriteHeader(a.status)
		return
	}
	var body comfyui.KeptFiles
	if json.NewDecoder(r.Body).Decode(&body) == nil && r.URL.Path == comfyui.KeptPath+"box" && len(body.Files) <= comfyui.MaxKept {
		a.files = append(a.files, body.Files...)
	}
}

// A hub tells an agent of the files that it has copied, with hash and time as the file has them.
func TestOutputsAreConfirmed(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	require.NotNil(t, b.hub.kept)
	b.hub.kept.Wants = func(string) bool { return true }
	agent := &keptAgent{}
	server := httptest.NewServer(agent)
	defer server.Close()
	client := must(comfyui.NewClient(server.URL+comfyui.InstancePath+"box", comfyui.Options{ViaAgent: true}))(t)
	defer client.Close()
	b.hub.kept.Client = func(string) *comfyui.Client { return client }
	b.connected(1)
	b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": "one"}`, work(0, 1, "none")))
	eventually(t, func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		return len(agent.files) == 1
	}, time.Minute, 10*time.Millisecond)
	require.Len(t, agent.files[0].SHA256, 64)
	require.Regexp(t, `^"[0-9a-f]+-[0-9a-f]+"$`, agent.files[0].ETag)
	require.NotEmpty(t, agent.files[0].Filename)
}

// A prompt that is answered from an instance's cache names the file of the run before. If that
// was deleted, the next run must make it again, and not name it again.
func TestCachedOutputThatWasDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBench(t, 0, serving(sim.Config{Dir: dir}))
		run := func(id string) {
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, work(0, 7, "none"), id))
			eventually(t, func() bool {
				_, text := b.get("/hub/jobs/" + id)
				return strings.Contains(string(text), `"status": "done"`) || strings.Contains(string(text), `"status": "failed"`)
			}, time.Minute, 10*time.Millisecond)
			_, text := b.get("/hub/jobs/" + id)
			require.Contains(t, string(text), `"status": "done"`)
		}
		run("first")
		outputs := must(filepath.Glob(filepath.Join(dir, "output", "*.png")))(t)
		require.Len(t, outputs, 1)
		require.NoError(t, os.Remove(outputs[0]))
		run("second")
	})
}

const heldPNG = "\x89PNG\r\n\x1a\n0000"

func TestHeldPictures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newPack(t, "one", sim.Config{})
		b := packed(t, p)
		b.play([]exchange{
			{method: "PUT", path: "/api/etn/image/a%2Fb", body: heldPNG, status: 201, want: `{"status": "success"}`},
			{method: "PUT", path: "/api/etn/image/a%2Fb", body: "other", status: 200, want: `{"status": "cached"}`},
			{method: "GET", path: "/api/etn/image/a%2Fb", status: 200, want: heldPNG},
			{method: "GET", path: "/api/etn/image/nope", status: 404, want: `{"error": "Image not found"}`},
			{method: "PUT", path: "/api/etn/image/..%2Fx", body: "x", status: 400, want: `{"error": "Invalid id"}`},
			{method: "GET", path: "/api/etn/image/%2e%2e%2Fx", status: 404, want: `{"error": "Image not found"}`},
			{method: "PUT", path: "/api/etn/image/..", body: "x", status: 405, want: "405: Method Not Allowed"},
			{method: "GET", path: "/api/etn/image/%2e%2e", status: 404, want: "404: Not Found"},
			{method: "GET", path: "/api/etn/image/left-by-a-node", status: 200, want: "one"},
		})

		// A graph names a file that it needs, and the instance has the file before it gets the job.
		ctx := t.Context()
		graph := []byte(`{"1": {"class_type": "ETN_LoadImageCache", "inputs": {"id": "a/b"}},
			"2": {"class_type": "Other", "inputs": {"id": "a/b"}}, "3": {"class_type": "ETN_X", "inputs": {"id": "nope", "link": ["1", 0]}}}`)
		parsed := must(catalog.ParseGraph(graph))(t)
		encoded := must(b.hub.submitter.Pin(ctx, "default", parsed, nil))(t)
		require.Contains(t, string(encoded), `"held":["a/b"]`)
		in := must(files.DecodeInputs(encoded))(t)
		renamed := must(b.hub.transfer.Push(ctx, "default", in, files.Target{Name: "one", Instance: b.hub.dispatch.Instances.First()}))(t)
		require.Empty(t, renamed)
		require.Equal(t, "PUT /api/etn/image/a%2Fb "+heldPNG, p.last())
		none := must(b.hub.submitter.Pin(ctx, "another", parsed, nil))(t)
		require.Nil(t, none, "another tenant's pictures are not there")

		// Waiting jobs that only name held pictures do not stop the sweep.
		pinned := must(b.hub.janitor.Pinned.All(ctx))(t)
		require.Empty(t, pinned)
		require.NoError(t, b.hub.held.Expire(ctx, time.Now()))
		require.True(t, b.hub.held.Has(ctx, "default", "a/b"))
	})
}

func TestHeldPicturesAreBounded(t *testing.T) {
	inBench(t, benchOf(0, func(b *bench) { b.settings.MaxUpload = 8 }), func(t *testing.T, b *bench) {
		resp := b.send(exchange{method: "PUT", path: "/api/etn/image/x", body: "0123456789"})
		require.Equal(t, http.StatusRequestEntityTooLarge, statusOf(read(t, resp)))
		require.False(t, b.hub.held.Has(t.Context(), "default", "x"))

		req, err := http.NewRequest(http.MethodPut, b.web.URL+"/api/etn/image/x", struct{ *strings.Reader }{strings.NewReader("0123456789")})
		require.NoError(t, err)
		req.ContentLength = -1
		resp, err = http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, statusOf(read(t, resp)))
		require.False(t, b.hub.held.Has(t.Context(), "default", "x"))
	})
}
