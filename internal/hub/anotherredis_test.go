package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

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

// A hub that meets an empty Redis with the storage of another deletes nothing, says so
// everywhere, and serves and accepts what it can. The operator settles it.
func TestAnEmptyRedisDeletesNothing(t *testing.T) {
	const hour = 52 // rounds after which all of the storage has been looked at
	storage, log := t.TempDir(), &logtest.Log{}
	first := newBench(t, 0, func(b *bench) { b.id.Storage = storage })
	for n := range 300 {
		status, body := first.upload(fmt.Sprint(n, ".png"), "", fmt.Sprint("picture ", n))
		require.Equal(t, http.StatusOK, status, body)
	}
	require.Len(t, pictures(t, storage), 300)
	keeper := *first.hub.janitor
	keeper.part = 0
	keeper.round(t.Context())
	require.InDelta(t, 1, first.metric("comfyhub_storage_bound"), 0)
	first.stop()
	age(t, storage)

	second := newBench(t, 0, func(b *bench) { b.id.Storage, b.log = storage, log })
	janitor := *second.hub.janitor
	for range 2 * hour {
		janitor.round(t.Context())
	}
	require.Len(t, pictures(t, storage), 300)
	require.Contains(t, log.String(), "nothing is deleted from the storage")
	require.InDelta(t, 0, second.metric("comfyhub_storage_bound"), 0)
	told := func() bool {
		return slices.ContainsFunc(second.hub.Checkup().Findings(t.Context()), func(f Finding) bool {
			return f.Level == LevelError && f.About == "storage" && strings.Contains(f.Do, "caddy comfyhub adopt-storage")
		})
	}
	require.True(t, told())
	status, _ := second.upload("new.png", "", "new")
	require.Equal(t, http.StatusOK, status)
	status, _ = second.get("/view?type=input&filename=new.png")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, second.hub.Ready(t.Context()))

	plan, err := second.hub.Operator().Adoption(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, plan.Strangers)
	require.Equal(t, 301, plan.Files)
	require.Equal(t, 300, plan.Unnamed)
	require.NoError(t, second.hub.Operator().AdoptStorage(t.Context()))
	janitor.round(t.Context())
	require.False(t, told())
	all := func() {
		for range hour {
			janitor.round(t.Context())
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
