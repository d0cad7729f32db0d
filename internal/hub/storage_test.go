package hub_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	_ "github.com/comfyhub/comfyhub/internal/files/s3"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/redis"
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
		body := b.gets("/view?filename=" + name)
		require.NotEmpty(t, body)
		req := must(http.NewRequest(http.MethodGet, b.web.URL+"/view?filename="+name, nil))(t)
		req.Header.Set("Range", "bytes=1-3")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, body[1:4], answered(read(t, resp))(t, http.StatusPartialContent))
	}
	one.posts("/settings/Comfy.ColorPalette", `"light"`)
	_, body := two.get("/settings/Comfy.ColorPalette")
	require.Equal(t, `"light"`, string(body))
	require.Empty(t, must(filepath.Glob(filepath.Join(one.id.Data, "files")))(t), "no file of a client is in the data folder")

	other := hub.New(config.Identity{Redis: server.URL(), Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	err := other.Start(context.Background(), one.settings)
	require.ErrorIs(t, err, files.ErrNotShared)
	require.ErrorContains(t, err, "the hubs of this Redis use different storages")
	_, body = two.get("/settings/Comfy.ColorPalette")
	require.Equal(t, `"light"`, string(body), "the others go on")
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
	for n := range 80 {
		answered(first.upload(fmt.Sprint(n, ".png"), "", fmt.Sprint("picture ", n)))(t, http.StatusOK)
	}
	require.Len(t, pictures(t, storage), 80)
	keeper := *first.hub.Janitor
	keeper.Part = 0
	keeper.Round(t.Context())
	require.InDelta(t, 1, first.metric("comfyhub_storage_bound"), 0)
	first.stop()
	age(t, storage)

	second := newBench(t, 0, func(b *bench) { b.id.Storage, b.log = storage, log })
	janitor := *second.hub.Janitor
	for range 2 * hour {
		janitor.Round(t.Context())
	}
	require.Len(t, pictures(t, storage), 80)
	require.Contains(t, log.String(), "nothing is deleted from the storage")
	require.InDelta(t, 0, second.metric("comfyhub_storage_bound"), 0)
	told := func() bool {
		return slices.ContainsFunc(second.hub.Checkup.Findings(t.Context()), func(f config.Finding) bool {
			return f.Level == config.LevelError && f.About == "storage" && strings.Contains(f.Do, "comfyhub adopt-storage")
		})
	}
	require.True(t, told())
	require.Contains(t, must(second.hub.Operator.Stats(t.Context()))(t).Strangers, "do not belong together")
	require.Equal(t, http.StatusOK, statusOf(second.upload("new.png", "", "new")))
	second.gets("/view?type=input&filename=new.png")
	require.NoError(t, second.hub.Ready(t.Context()))

	plan := must(second.hub.Bond.Adoption(t.Context()))(t)
	require.NotEmpty(t, plan.Strangers)
	require.Equal(t, 81, plan.Files)
	require.Equal(t, 80, plan.Unnamed)
	require.NoError(t, second.hub.Bond.Adopt(t.Context()))
	janitor.Round(t.Context())
	require.False(t, told())
	all := func() {
		for range hour {
			janitor.Round(t.Context())
		}
	}
	all()
	require.Len(t, pictures(t, storage), 81, "there is a week to think again")
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

// A hub whose Redis answers but stores nothing is not ready, and says why.
func TestNotReadyWhileRedisTakesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 0, func(b *bench) { b.id.Redis = server.URL() })
	b.becomesReady()
	client := redistest.Open(t, server.URL()).Client()
	require.NoError(t, client.SlaveOf(t.Context(), "127.0.0.1", "1").Err())
	eventually(t, func() bool { return b.hub.Ready(t.Context()) != nil }, time.Minute, 5*time.Millisecond)
	require.ErrorIs(t, b.hub.Ready(t.Context()), redis.ErrUnavailable)
	require.ErrorContains(t, b.hub.Ready(t.Context()), "READONLY")
	finding := b.hub.Checkup.Findings(t.Context())
	require.Contains(t, finding, config.Finding{
		Level: config.LevelError, About: "redis", Says: b.hub.Ready(t.Context()).Error(), Do: "prompts are refused until Redis answers and stores what scripts write",
	})
	require.NoError(t, client.SlaveOf(t.Context(), "NO", "ONE").Err())
	b.becomesReady()
}

// A hub whose storage is unmounted says so everywhere, gives out no jobs, tells nobody
// that a file is gone, and goes on by itself when the storage is back.
func TestHubWithASickStorage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 1, func(b *bench) { b.log = log })
		require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text)
		require.NoError(t, b.hub.Ready(t.Context()))
		require.InDelta(t, 1, b.metric("comfyhub_storage_up"), 0)

		mount := filepath.Join(b.id.Data, "files")
		require.NoError(t, os.Rename(mount, mount+".away"))
		require.NoError(t, os.Mkdir(mount, 0o700))
		status, body := b.get("/view?filename=ComfyUI_00001_.png")
		// The output may still be on its instance, but the hub does not say that it is gone.
		require.NotEqual(t, http.StatusNotFound, status, string(body))
		eventually(t, func() bool { return b.hub.Ready(t.Context()) != nil }, time.Minute, 5*time.Millisecond)
		require.ErrorIs(t, b.hub.Ready(t.Context()), files.ErrStorage)
		require.ErrorContains(t, b.hub.Ready(t.Context()), "is it mounted?")
		require.InDelta(t, 0, b.metric("comfyhub_storage_up"), 0)
		eventually(t, func() bool { return strings.Contains(log.String(), "no jobs are given out until it can") }, time.Minute, 5*time.Millisecond)
		id := b.submit(picture(2), "ann")
		body = b.posts("/hub/explain", `{"prompt_id": "`+id+`"}`)
		require.Contains(t, string(body), "storage takes no files now")
		require.Equal(t, http.StatusServiceUnavailable, statusOf(b.upload("a.png", "", "bytes")))
		require.Equal(t, 1, started(b))

		require.NoError(t, os.RemoveAll(mount))
		require.NoError(t, os.Rename(mount+".away", mount))
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.NoError(t, b.hub.Ready(t.Context()))
		eventually(t, func() bool { return strings.Contains(log.String(), "the storage works again") }, time.Minute, 5*time.Millisecond)
		b.gets("/view?filename=ComfyUI_00001_.png")
	})
}

// A hub that is closed is garbage: a configuration that is loaded again and again makes many.
func TestClosedHubIsForgotten(t *testing.T) {
	var closed weak.Pointer[hub.Hub]
	t.Run("one", func(t *testing.T) {
		b := newBench(t, 1)
		b.finished(b.submit(picture(1), "ann"))
		b.get("/object_info")
		b.get("/")
		closed = weak.Make(b.hub)
	})
	eventually(t, func() bool {
		runtime.GC()
		return closed.Value() == nil
	}, time.Minute, 100*time.Millisecond)
}
