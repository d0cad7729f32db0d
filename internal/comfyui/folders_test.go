package comfyui

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

func put(t *testing.T, path ...string) string {
	t.Helper()
	full := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, nil, 0o644))
	return full
}

// A file that comes or goes in a model folder is told at once, also by a server
// that is never idle.
func TestWatchLooksAtModelFolders(t *testing.T) {
	t.Parallel()
	server, err := sim.New(sim.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() { server.Close(); web.Close() })
	w := startWatch(t, web.URL, WatchOptions{Folders: true, FoldersEvery: 5 * time.Millisecond, ObjectInfoEvery: time.Hour})
	w.await(t, "up", func(o Observation) bool { return o.Idle() && o.ObjectInfoHash != "" })
	c := newTestClient(t, web.URL)
	_, err = c.Submit(t.Context(), []byte(`{"prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 1}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 10}},
		"3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}}}}`))
	require.NoError(t, err)
	w.await(t, "busy", func(o Observation) bool { return o.Up && !o.Idle() })
	hashes := map[string]bool{w.last().ObjectInfoHash: true}
	var last string
	next := func(what string) {
		w.await(t, what, func(o Observation) bool { return !hashes[o.ObjectInfoHash] })
		last = w.last().ObjectInfoHash
		hashes[last] = true
		require.False(t, w.last().Idle())
	}
	models := filepath.Join(server.Dir(), "models")
	first := put(t, models, "loras", "a.safetensors")
	next("a new folder with a file")
	put(t, models, "loras", "sub", "deep", "b.safetensors")
	next("new folders below")
	put(t, models, "loras", "sub", "deep", "c.safetensors")
	next("a file in one of them")
	require.NoError(t, os.Remove(first))
	next("a file has gone")
}

func TestFolderWatchIsBounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "loras", "sub", "a.pt")
	put(t, root, "loras", ".git", "b.pt")
	require.NoError(t, os.Symlink(root, filepath.Join(root, "loras", "sub", "circle")))
	other := t.TempDir()
	require.NoError(t, os.Symlink(other, filepath.Join(root, "loras", "linked")))
	f := newFolderWatch(nil, time.Second)
	f.places = []string{filepath.Join(root, "loras"), filepath.Join(root, "loras"), filepath.Join(root, "nowhere")}
	f.asked = time.Now()
	require.True(t, f.look(), "all is new")
	require.False(t, f.look(), "nothing has changed")
	require.Less(t, len(f.seen), 5*maxFolderDepth, "a circle ends")
	require.NotContains(t, f.seen, filepath.Join(root, "loras", ".git"))
	put(t, other, "new.pt")
	require.True(t, f.look(), "a link is followed")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "loras")))
	require.True(t, f.look(), "a folder has gone")
	require.Empty(t, f.seen)
	require.False(t, f.look())
}

func FuzzParsePlaces(f *testing.F) {
	f.Add([]byte(`[{"name": "loras", "folders": ["/models/loras", "relative", 3]}]`))
	f.Add([]byte(`{"name": NaN}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, place := range parsePlaces(body) {
			require.True(t, filepath.IsAbs(place))
		}
		many, err := json.Marshal([]any{map[string]any{"folders": []string{string(body)}}})
		require.NoError(t, err)
		require.LessOrEqual(t, len(parsePlaces(many)), 1)
	})
}
