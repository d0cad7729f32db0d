package hub

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
)

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
			require.Contains(t, b.text("/hub/jobs/"+id), `"status": "done"`)
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
		require.Empty(t, must(b.hub.transfer.Push(ctx, "default", in, files.Target{Name: "one", Instance: b.hub.dispatch.Instances.First()}))(t))
		require.Equal(t, "PUT /api/etn/image/a%2Fb "+heldPNG, p.last())
		require.Nil(t, must(b.hub.submitter.Pin(ctx, "another", parsed, nil))(t), "another tenant's pictures are not there")

		// Waiting jobs that only name held pictures do not stop the sweep.
		require.Empty(t, must(b.hub.janitor.Pinned.All(ctx))(t))
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
