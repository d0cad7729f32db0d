package hub

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// made runs a graph and returns the name of its picture and the time when the job ended.
func (b *bench) made(graph string) (id, name string, end time.Time) {
	b.t.Helper()
	id = b.submit(graph, "ann")
	name = b.finished(id).Outputs["2"].Images[0].Filename
	j, err := b.hub.queue.Find(context.Background(), "default", id)
	require.NoError(b.t, err)
	return id, name, time.UnixMilli(j.FinishedAt)
}

func (b *bench) views(name string) bool {
	b.t.Helper()
	status, _ := b.get("/view?filename=" + name)
	require.Contains(b.t, []int{http.StatusOK, http.StatusNotFound}, status)
	return status == http.StatusOK
}

// A history entry goes away together with the files that no younger entry names. A
// file that a cached run has named again stays.
func TestHistoryGoesWithItsFiles(t *testing.T) {
	for name, configure := range map[string]func(*testing.T, *bench){
		"folder":       func(*testing.T, *bench) {},
		"object store": func(t *testing.T, b *bench) { b.id.Storage = bucket(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1, func(b *bench) { configure(t, b) })
			old, red, _ := b.made(picture(0xff0000))
			first, green, end := b.made(picture(0x00ff00))
			eventually(t, func() bool { return time.Since(end) > 2*time.Millisecond }, time.Minute, time.Millisecond)
			again, cached, _ := b.made(picture(0x00ff00))
			require.Equal(t, green, cached, "the cached run names the same file")

			ctx, later := t.Context(), end.Add(time.Hour)
			require.NoError(t, b.hub.janitor.forget(ctx, "", end, later))
			for _, id := range []string{old, first} {
				_, there := b.history(id)
				require.False(t, there)
			}
			require.False(t, b.views(red))
			_, there := b.history(again)
			require.True(t, there)
			require.True(t, b.views(green))

			// When an operator's client clears the history, no files are deleted, as in
			// ComfyUI. They expire later by themselves.
			status, _ := b.post("/history", `{"clear": true}`)
			require.Equal(t, http.StatusOK, status)
			require.True(t, b.views(green))
			b.settings.HistoryAge = time.Hour
			require.NoError(t, b.hub.Start(ctx, b.settings))
			require.NoError(t, b.hub.janitor.retainAt(ctx, end.Add(30*time.Minute)))
			require.True(t, b.views(green))
			require.NoError(t, b.hub.janitor.retainAt(ctx, end.Add(2*time.Hour)))
			require.False(t, b.views(green))
		})
	}
}

func TestHistoryIsBoundedBySize(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		var ids, names []string
		for n := range 4 {
			id, name, _ := b.made(picture(0x100000 + n))
			ids, names = append(ids, id), append(names, name)
		}
		_, body := b.get("/view?filename=" + names[0])
		b.settings.HistorySize = int64(len(body))*2 + 5
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now()))
		for _, name := range names {
			require.True(t, b.views(name), "all are young")
		}
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now().Add(time.Hour)))
		kept := 0
		for n, name := range names {
			_, there := b.history(ids[n])
			require.Equal(t, there, b.views(name), "an entry and its files go together")
			if there {
				kept++
			} else {
				require.Zero(t, kept, "the oldest go")
			}
		}
		require.Positive(t, kept)
		require.LessOrEqual(t, kept, 2)
	})
}

// An upload that a job still needs stays, however old it is.
func TestInputsGrowOld(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.settings.InputAge = time.Hour })
		for _, name := range []string{"needed.png", "old.png"} {
			status, _ := b.upload(name, "", name)
			require.Equal(t, http.StatusOK, status)
		}
		b.submit(`{"1": {"class_type": "LoadImage", "inputs": {"image": "needed.png"}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, "ann")
		has := func(name string) bool {
			status, _ := b.get("/view?type=input&filename=" + name)
			return status == http.StatusOK
		}
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now()))
		require.True(t, has("old.png"))
		require.NoError(t, b.hub.janitor.retainAt(t.Context(), time.Now().Add(2*time.Hour)))
		require.False(t, has("old.png"))
		require.True(t, has("needed.png"))
	})
}

// One hub does the cleaning. When it stops, another one takes over.
func TestOneHubKeepsHouse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := redisInMemory(t)
		one := newBench(t, 0, func(b *bench) { b.id.Redis = server })
		two := newBench(t, 0, func(b *bench) {
			b.id.Redis, b.id.Storage = server, filepath.Join(one.id.Data, "files")
		})
		lead := func(b *bench) bool {
			ok, err := b.hub.store.Lead(t.Context(), "house", b.hub.self, time.Minute)
			require.NoError(t, err)
			return ok
		}
		require.True(t, lead(one))
		require.False(t, lead(two))
		require.True(t, lead(one))
	})
}
