package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	_ "github.com/comfyhub/comfyhub/internal/files/s3"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/retention"
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
		body := b.gets("/view?filename=" + name)
		require.NotEmpty(t, body)
		req := must(http.NewRequest(http.MethodGet, b.web.URL+"/view?filename="+name, nil))(t)
		req.Header.Set("Range", "bytes=1-3")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		part := answered(read(t, resp))(t, http.StatusPartialContent)
		require.Equal(t, body[1:4], part)
	}
	one.posts("/settings/Comfy.ColorPalette", `"light"`)
	_, body := two.get("/settings/Comfy.ColorPalette")
	require.Equal(t, `"light"`, string(body))
	left := must(filepath.Glob(filepath.Join(one.id.Data, "files")))(t)
	require.Empty(t, left, "no file of a client is in the data folder")

	other := New(config.Identity{Redis: server.URL(), Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	err := other.Start(context.Background(), one.settings)
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
	body := b.gets("/userdata/empty.txt")
	require.Empty(t, body)
}

// pictures are the files of clients in a storage, which is a folder.
func pictures(t *testing.T, storage string) (names []string) {
	t.Helper()
	for _, kind := range []string{"content", "output"} {
		err := filepath.WalkDir(filepath.Join(storage, kind), func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names = append(names, name)
			}
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
	}
	return names
}

// age makes all pictures of a storage a month old.
func age(t *testing.T, storage string) {
	t.Helper()
	old := time.Now().AddDate(0, -1, 0)
	for _, name := range pictures(t, storage) {
		require.NoError(t, os.Chtimes(name, old, old))
	}
}

// A hub that meets an empty Redis with another's storage deletes nothing, says so everywhere, and
// serves and accepts what it can. The operator settles it.
func TestAnEmptyRedisDeletesNothing(t *testing.T) {
	const hour = 52 // rounds after which all of the storage has been looked at
	storage, log := t.TempDir(), &logtest.Log{}
	first := newBench(t, 0, func(b *bench) { b.id.Storage = storage })
	for n := range 300 {
		answered(first.upload(fmt.Sprint(n, ".png"), "", fmt.Sprint("picture ", n)))(t, http.StatusOK)
	}
	require.Len(t, pictures(t, storage), 300)
	keeper := *first.hub.janitor
	keeper.Part = 0
	keeper.Round(t.Context())
	require.InDelta(t, 1, first.metric("comfyhub_storage_bound"), 0)
	first.stop()
	age(t, storage)

	second := newBench(t, 0, func(b *bench) { b.id.Storage, b.log = storage, log })
	janitor := *second.hub.janitor
	for range 2 * hour {
		janitor.Round(t.Context())
	}
	require.Len(t, pictures(t, storage), 300)
	require.Contains(t, log.String(), "nothing is deleted from the storage")
	require.InDelta(t, 0, second.metric("comfyhub_storage_bound"), 0)
	told := func() bool {
		return slices.ContainsFunc(second.hub.Checkup().Findings(t.Context()), func(f config.Finding) bool {
			return f.Level == config.LevelError && f.About == "storage" && strings.Contains(f.Do, "caddy comfyhub adopt-storage")
		})
	}
	require.True(t, told())
	require.Contains(t, must(second.hub.Operator().Stats(t.Context()))(t).Strangers, "do not belong together")
	require.Equal(t, http.StatusOK, statusOf(second.upload("new.png", "", "new")))
	second.gets("/view?type=input&filename=new.png")
	require.NoError(t, second.hub.Ready(t.Context()))

	plan := must(second.hub.Operator().Adoption(t.Context()))(t)
	require.NotEmpty(t, plan.Strangers)
	require.Equal(t, 301, plan.Files)
	require.Equal(t, 300, plan.Unnamed)
	require.NoError(t, second.hub.Operator().AdoptStorage(t.Context()))
	janitor.Round(t.Context())
	require.False(t, told())
	all := func() {
		for range hour {
			janitor.Round(t.Context())
		}
	}
	all()
	require.Len(t, pictures(t, storage), 301, "there is a week to think again")
	old := time.Now().AddDate(0, 0, -8)
	require.NoError(t, os.Chtimes(filepath.Join(storage, "comfyhub-bond"), old, old))
	all()
	require.Len(t, pictures(t, storage), 1)
	require.InDelta(t, 1, second.metric("comfyhub_storage_bound"), 0)
	require.Contains(t, log.String(), "Redis and the storage belong together again")
	second.stop()

	first.start() // which has another Redis
	require.InDelta(t, 0, first.metric("comfyhub_storage_bound"), 0)
}

// waits puts a job into the queue that needs a blob, or none.
func (b *bench) waits(id, blob string) job.Job {
	b.t.Helper()
	body := job.Body{Prompt: []byte(`{"1": {"class_type": "Nobody", "inputs": {}}}`)}
	if blob != "" {
		pins := must(files.Pins{{Ref: job.FileRef{Filename: id, Type: job.TypeInput}, Key: blob}}.Encode())(b.t)
		body.Inputs = must(json.Marshal(files.Inputs{Version: 1, Pins: pins}))(b.t)
	}
	accepted, err := b.hub.queue.Enqueue(context.Background(), queue.Submission{
		Key: fmt.Sprint("key-", id), ID: id, Requester: job.Requester{Tenant: job.DefaultTenant, Caller: "caller"}, Class: "class", BodyHash: id, Body: body,
	})
	require.NoError(b.t, err)
	return accepted.Job
}

// The body of a job is read once, and what it needs is known until it has ended.
func TestPinnedBlobsAreReadOnce(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		ctx := t.Context()
		var read []string
		pinned := retention.PinnedBlobs{Turn: semaphore.NewWeighted(1), Live: b.hub.queue.LiveKeys, Each: func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error {
			read = append(read, keys...)
			return b.hub.queue.EachBody(ctx, keys, use)
		}}
		look := func(now []string, want ...string) {
			t.Helper()
			read = nil
			got := must(pinned.All(ctx))(t)
			all := map[string]bool{}
			for _, blob := range want {
				all[blob] = true
			}
			require.Equal(t, all, got)
			require.ElementsMatch(t, now, read)
		}
		look(nil)
		one, two, none := b.waits("one", "blob 1"), b.waits("two", "blob 2"), b.waits("none", "")
		look([]string{one.Key, two.Key, none.Key}, "blob 1", "blob 2")
		look(nil, "blob 1", "blob 2")
		three := b.waits("three", "blob 2")
		look([]string{three.Key}, "blob 1", "blob 2")
		must(b.hub.queue.CancelWaiting(ctx, []string{one.Key, two.Key}))(t)
		look(nil, "blob 2")
		must(b.hub.queue.CancelWaiting(ctx, []string{three.Key}))(t)
		look(nil)
		require.Len(t, pinned.Jobs, 1, "of jobs that have ended nothing is kept")
	})
}

// What cannot be read may be needed, so nothing is known then, and it is tried again.
func TestPinnedBlobsThatCannotBeRead(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		b.waits("one", "blob 1")
		broken := true
		pinned := retention.PinnedBlobs{Turn: semaphore.NewWeighted(1), Live: b.hub.queue.LiveKeys, Each: func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error {
			if broken {
				return context.DeadlineExceeded
			}
			return b.hub.queue.EachBody(ctx, keys, use)
		}}
		_, err := pinned.All(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		broken = false
		all := must(pinned.All(t.Context()))(t)
		require.Equal(t, map[string]bool{"blob 1": true}, all)
	})
}

// BenchmarkPinnedBlobs looks at 2,400 waiting jobs.
func BenchmarkPinnedBlobs(b *testing.B) {
	hub := newBench(b, 0, func(b *bench) { b.settings.MaxQueue = 10_000 })
	for n := range 2_400 { // a tenant may have a quarter of the queue
		hub.waits(fmt.Sprint(n), fmt.Sprint("blob ", n))
	}
	for name, forget := range map[string]bool{"known": false, "first": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if forget {
					hub.hub.janitor.Pinned.Jobs = nil
				}
				if _, err := hub.hub.janitor.Pinned.All(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
