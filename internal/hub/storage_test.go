package hub

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// bucket returns the location of a new bucket.
func bucket(t *testing.T) string {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value)
	}
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("pictures"))
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	return "s3://pictures?endpoint=" + srv.URL + "&prefix=fleet"
}

// Two hubs share only a Redis and a bucket. Each serves the pictures, uploads and
// settings of the other. A hub with a different storage does not start.
func TestHubsShareAnObjectStore(t *testing.T) {
	server, location := redistest.Start(t), bucket(t)
	one := newBench(t, 1, func(b *bench) { b.id.Redis, b.id.Storage = server.URL(), location })
	two := newBench(t, 0, func(b *bench) {
		b.id.Redis, b.id.Storage = server.URL(), location
		b.id.GossipBind = "localhost:0"
	})
	id := two.submit(picture(0x00ff00), "ann")
	e := two.finished(id)
	name := e.Outputs["2"].Images[0].Filename
	for _, b := range []*bench{one, two} {
		status, body := b.get("/view?filename=" + name)
		require.Equal(t, http.StatusOK, status)
		require.NotEmpty(t, body)
		req, err := http.NewRequest(http.MethodGet, b.web.URL+"/view?filename="+name, nil)
		require.NoError(t, err)
		req.Header.Set("Range", "bytes=1-3")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		status, part := read(t, resp)
		require.Equal(t, http.StatusPartialContent, status)
		require.Equal(t, body[1:4], part)
	}
	status, _ := one.post("/settings/Comfy.ColorPalette", `"light"`)
	require.Equal(t, http.StatusOK, status)
	_, body := two.get("/settings/Comfy.ColorPalette")
	require.Equal(t, `"light"`, string(body))
	left, err := filepath.Glob(filepath.Join(one.id.Data, "files"))
	require.NoError(t, err)
	require.Empty(t, left, "no file of a client is in the data folder")

	other := New(Identity{Redis: server.URL(), Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	err = other.Start(context.Background(), one.settings)
	require.ErrorIs(t, err, files.ErrNotShared)
	require.ErrorContains(t, err, "the hubs of this Redis use different storages")
	_, body = two.get("/settings/Comfy.ColorPalette")
	require.Equal(t, `"light"`, string(body), "the others go on")
}

// Saved workflows and settings are in the object store too.
func TestUserFilesInAnObjectStore(t *testing.T) {
	location := bucket(t)
	b := newBench(t, 0, func(b *bench) { b.id.Storage = location })
	b.play([]exchange{
		{method: "POST", path: "/userdata/workflows%2Fa.json", body: `{"x":1}`, status: 200, want: `"workflows/a.json"`},
		{method: "POST", path: "/userdata/workflows%2Fdeep%2Fb.json", body: `{}`, status: 200, want: `"workflows/deep/b.json"`},
		{method: "POST", path: "/userdata/workflows%2Fa.json?overwrite=false", body: `{}`, status: 409, want: "File already exists"},
		{method: "GET", path: "/userdata?dir=workflows&recurse=true", status: 200, want: `["a.json", "deep/b.json"]`},
		{method: "GET", path: "/userdata?dir=none", status: 404, want: "Directory not found"},
		{method: "POST", path: "/userdata/workflows%2Fa.json/move/workflows%2Fc.json", status: 200, want: `"workflows/c.json"`},
		{method: "GET", path: "/userdata/workflows%2Fa.json", status: 404},
		{method: "GET", path: "/userdata/workflows%2Fc.json", status: 200, want: `{"x":1}`},
		{method: "POST", path: "/userdata/empty.txt", body: "", status: 200, want: `"empty.txt"`},
		{method: "DELETE", path: "/userdata/workflows%2Fc.json", status: 204},
		{method: "GET", path: "/userdata?dir=workflows&recurse=true", status: 200, want: `["deep/b.json"]`},
		{method: "POST", path: "/settings", body: `{"a": 1}`, status: 200},
		{method: "GET", path: "/settings", status: 200, want: `{"a": 1}`},
	})
	status, body := b.get("/userdata/empty.txt")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, body)
}
