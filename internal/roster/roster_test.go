package roster

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const body = `{"EmptyImage": {"input": {"required": {"width": ["INT", {"default": 512}]}}, "output": ["IMAGE"], "output_node": false}}`

var hash = comfyui.HashObjectInfo([]byte(body))

func open(t *testing.T, db *redis.DB, dir string) *Roster {
	t.Helper()
	storage := must.Get(files.OpenStorage(t.Context(), dir))(t)
	t.Cleanup(func() { require.NoError(t, storage.Close()) })
	return New(Options{DB: db, Storage: storage, Library: catalog.NewLibrary(), Logger: slog.New(slog.DiscardHandler)})
}

func (r *Roster) look(t *testing.T, here ...string) map[string]Instance {
	t.Helper()
	names := map[string]bool{}
	for _, name := range here {
		names[name] = true
	}
	require.NoError(t, r.round(t.Context(), names))
	return *r.known.Load()
}

// What a hub has seen is known to other hubs, and to its own next process.
func TestHubsKnowEachOthersInstances(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		dir := t.TempDir()
		one, two := open(t, db, dir), open(t, db, dir)
		require.Empty(t, two.look(t))
		one.Keep("gpu", comfyui.ParseVersion("0.3.64"), hash, []byte(body))
		require.Empty(t, one.look(t), "it is not connected yet")
		one.look(t, "gpu")
		require.Empty(t, one.Elsewhere())
		known := two.look(t)["gpu"]
		require.Equal(t, "0.3.64", known.Version.Text)
		require.True(t, two.Elsewhere()["gpu"].Has("EmptyImage"))

		// It reaches the instance itself.
		two.look(t, "gpu")
		require.Empty(t, two.Elsewhere())

		// No hub has it any more.
		m := two.moved["gpu"]
		two.moved["gpu"] = movement{m.to, m.at.Add(-presentFor)}
		known = two.look(t)["gpu"]
		require.Empty(t, two.Elsewhere())
		require.True(t, known.Info.Has("EmptyImage"), "its jobs wait for it")

		next := open(t, db, dir)
		require.True(t, next.Recall(t.Context(), hash).Has("EmptyImage"))
		require.True(t, next.look(t)["gpu"].Info.Has("EmptyImage"))

		m = two.moved["gpu"]
		two.moved["gpu"] = movement{m.to, m.at.Add(-rememberFor)}
		require.Empty(t, two.look(t), "it is forgotten in the end")
		require.Empty(t, next.look(t))
	})
}

// A hub says again that it has an instance, so that it stays present for others.
func TestPresenceIsRepeated(t *testing.T) {
	t.Parallel()
	db, dir := redistest.Embedded(t), t.TempDir()
	one, two := open(t, db, dir), open(t, db, dir)
	one.Keep("gpu", comfyui.Version{}, hash, []byte(body))
	one.look(t, "gpu")
	two.look(t)
	before := two.moved["gpu"]
	one.look(t, "gpu")
	two.look(t)
	require.Equal(t, before, two.moved["gpu"], "it is too early")
	one.moved["gpu"] = movement{before.to, before.at.Add(-tellEveryAlone)}
	require.Eventually(t, func() bool { // the clock may stand still for a millisecond
		one.look(t, "gpu")
		two.look(t)
		return two.moved["gpu"].to != before.to
	}, time.Minute, time.Millisecond)
}

// A body is stored once, however many instances have it; an instance whose lists
// change all the time does not fill the storage.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	db, dir := redistest.Embedded(t), t.TempDir()
	r := open(t, db, dir)
	for _, name := range []string{"a", "b", "c"} {
		r.Keep(name, comfyui.Version{}, hash, []byte(body))
	}
	changed := []byte(body + " ")
	r.Keep("a", comfyui.Version{}, comfyui.HashObjectInfo(changed), changed)
	require.Len(t, r.look(t, "a", "b", "c"), 3)
	stored := must.Get(os.ReadDir(filepath.Join(dir, folder)))(t)
	require.Len(t, stored, 1)

	// It is removed when it is old and nobody has it any more.
	path := filepath.Join(dir, folder, hash)
	old := time.Now().Add(-2 * rememberFor)
	require.NoError(t, os.Chtimes(path, old, old))
	r.sweep(t.Context())
	require.FileExists(t, path, "three instances have it")
	require.NoError(t, db.Client().Del(t.Context(), r.key()).Err())
	r.look(t)
	r.sweep(t.Context())
	require.NoFileExists(t, path)
}

// What is in the storage is not believed unless it is what it should be.
func TestDamagedBody(t *testing.T) {
	t.Parallel()
	db, dir := redistest.Embedded(t), t.TempDir()
	r := open(t, db, dir)
	other := must.Get(pack([]byte(body + " ")))(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o700))
	for _, damaged := range [][]byte{nil, []byte("no zstd"), other, other[:len(other)-3]} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, folder, hash), damaged, 0o600))
		require.Nil(t, r.Recall(t.Context(), hash))
		r.shelf.retain(nil)
	}
	for _, odd := range []string{"", ".", "..", "../last-known.json", "a/b"} {
		require.Nil(t, r.Recall(t.Context(), odd))
	}
	require.NoError(t, db.Client().HSet(t.Context(), r.key(), "odd", "{").Err())
	r.look(t)
}

// Run stops with its context, and reports what it has read.
func TestRun(t *testing.T) {
	t.Parallel()
	db, dir := redistest.Embedded(t), t.TempDir()
	one, two := open(t, db, dir), open(t, db, dir)
	one.Keep("gpu", comfyui.Version{}, hash, []byte(body))
	one.look(t, "gpu")
	ctx, stop := context.WithCancel(t.Context())
	var got map[string]Instance
	two.Run(ctx, func() map[string]bool { return nil }, func(known map[string]Instance) { got = known; stop() })
	require.True(t, got["gpu"].Elsewhere)
	<-two.Looked()
}

// Hubs note when they had an instance by Redis's clock, and a hub that starts believes that,
// though by its own clock it is two days ago, or yet to come.
func TestInstancesAreAsOldAsRedisSays(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			server := miniredis.RunT(t)
			server.SetTime(time.Now().Add(skew))
			db, dir := redistest.Open(t, "redis://"+server.Addr()), t.TempDir()
			now, err := db.Now(t.Context())
			require.NoError(t, err)
			one := open(t, db, dir)
			one.Keep("gpu", comfyui.Version{}, hash, []byte(body))
			one.look(t, "gpu")
			var stored entry
			require.NoError(t, json.Unmarshal([]byte(server.HGet(one.key(), "gpu")), &stored))
			require.WithinDuration(t, now, time.UnixMilli(stored.At), time.Minute)
			known := open(t, db, dir).look(t)
			require.WithinDuration(t, time.Now(), known["gpu"].Seen, time.Minute)
			require.True(t, known["gpu"].Elsewhere)
		})
	}
}
