package hub

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
)

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
		parsed, err := catalog.ParseGraph(graph)
		require.NoError(t, err)
		encoded, err := b.hub.submitter.pin(ctx, "default", parsed, nil)
		require.NoError(t, err)
		require.Contains(t, string(encoded), `"held":["a/b"]`)
		in, err := files.DecodeInputs(encoded)
		require.NoError(t, err)
		renamed, err := b.hub.transfer.Push(ctx, "default", in, files.Target{Name: "one", Instance: b.hub.dispatch.First()})
		require.NoError(t, err)
		require.Empty(t, renamed)
		require.Equal(t, "PUT /api/etn/image/a%2Fb "+heldPNG, p.last())
		none, err := b.hub.submitter.pin(ctx, "another", parsed, nil)
		require.NoError(t, err)
		require.Nil(t, none, "another tenant's pictures are not there")

		// Waiting jobs that only name held pictures do not stop the sweep.
		pinned, err := b.hub.janitor.pinned.all(ctx)
		require.NoError(t, err)
		require.Empty(t, pinned)
		require.NoError(t, b.hub.held.Expire(ctx))
		require.True(t, b.hub.held.Has(ctx, "default", "a/b"))
	})
}

func TestHeldPicturesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.settings.MaxUpload = 8 })
		resp := b.send(exchange{method: "PUT", path: "/api/etn/image/x", body: "0123456789"})
		status, _ := read(t, resp)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.False(t, b.hub.held.Has(t.Context(), "default", "x"))

		req, err := http.NewRequest(http.MethodPut, b.web.URL+"/api/etn/image/x", struct{ *strings.Reader }{strings.NewReader("0123456789")})
		require.NoError(t, err)
		req.ContentLength = -1
		resp, err = http.DefaultClient.Do(req)
		require.NoError(t, err)
		status, _ = read(t, resp)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.False(t, b.hub.held.Has(t.Context(), "default", "x"))
	})
}
