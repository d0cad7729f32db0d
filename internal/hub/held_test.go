package hub

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/sim"
)

const heldPNG = "\x89PNG\r\n\x1a\n0000"

func TestHeldPictures(t *testing.T) {
	t.Parallel()
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

	// A graph names what it needs; the instance has it before it gets the job.
	ctx := t.Context()
	graph := []byte(`{"1": {"class_type": "ETN_LoadImageCache", "inputs": {"id": "a/b"}},
		"2": {"class_type": "Other", "inputs": {"id": "a/b"}}, "3": {"class_type": "ETN_X", "inputs": {"id": "nope", "link": ["1", 0]}}}`)
	parsed, err := catalog.ParseGraph(graph)
	require.NoError(t, err)
	encoded, err := b.hub.pin(ctx, "default", parsed, nil)
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"held":["a/b"]`)
	sent, err := (*transport)(b.hub).Push(ctx, "default", encoded, graph, "one", b.hub.dispatch.Primary())
	require.NoError(t, err)
	require.Equal(t, graph, sent)
	require.Equal(t, "PUT /api/etn/image/a%2Fb "+heldPNG, p.last())
	none, err := b.hub.pin(ctx, "another", parsed, nil)
	require.NoError(t, err)
	require.Nil(t, none, "another tenant's pictures are not there")

	// Waiting jobs with held pictures only do not hinder the sweep.
	pinned, err := b.hub.pinned(ctx)
	require.NoError(t, err)
	require.Empty(t, pinned)
	require.NoError(t, b.hub.held.expire(ctx, time.Now().Add(-heldFor), maxAllHeldBytes))
	require.True(t, b.hub.held.has(ctx, "default", "a/b"))
	require.NoError(t, b.hub.held.expire(ctx, time.Now().Add(time.Hour), maxAllHeldBytes))
	require.False(t, b.hub.held.has(ctx, "default", "a/b"))
}

func TestHeldPicturesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, func(b *bench) { b.settings.MaxUpload = 8 })
	resp := b.send(exchange{method: "PUT", path: "/api/etn/image/x", body: "0123456789"})
	status, _ := read(t, resp)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.False(t, b.hub.held.has(t.Context(), "default", "x"))

	req, err := http.NewRequest(http.MethodPut, b.web.URL+"/api/etn/image/x", struct{ *strings.Reader }{strings.NewReader("0123456789")})
	require.NoError(t, err)
	req.ContentLength = -1
	resp, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	status, _ = read(t, resp)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.False(t, b.hub.held.has(t.Context(), "default", "x"))

	ctx := t.Context()
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, b.hub.held.put(ctx, "default", id, strings.NewReader("1234")))
	}
	require.NoError(t, b.hub.held.shrink(ctx, b.hub.held.folder("default"), 8, 9))
	require.False(t, b.hub.held.has(ctx, "default", "a"), "the oldest gives way")
	require.True(t, b.hub.held.has(ctx, "default", "c"))
}

// A tenant's pictures push out its own, by number as by size; over the bound of
// all, those of the tenant that has the most go.
func TestHeldPicturesOfOthersStay(t *testing.T) {
	t.Parallel()
	b, ctx := newBench(t, 0), t.Context()
	put := func(tenant, id string, size int) {
		require.NoError(t, b.hub.held.put(ctx, tenant, id, strings.NewReader(strings.Repeat("x", size))))
	}
	left := func(tenant string) int { return b.stored(b.hub.held.folder(tenant)) }
	put("small", "1", 50)
	for n := range 5 {
		put("many", fmt.Sprint(n), 10)
		put("large", fmt.Sprint(n), 100)
	}
	require.NoError(t, b.hub.held.shrink(ctx, b.hub.held.folder("many"), 1000, 3))
	require.Equal(t, 3, left("many"))
	require.NoError(t, b.hub.held.expire(ctx, time.Now().Add(-heldFor), 300))
	require.Equal(t, 1, left("small"))
	require.Equal(t, 3, left("many"))
	require.Equal(t, 2, left("large"))
	require.True(t, b.hub.held.has(ctx, "large", "4"), "the oldest go")
}
