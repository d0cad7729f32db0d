package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func TestStorage(t *testing.T) {
	sideBySide(t, map[string]string{
		"folder": filepath.Join(t.TempDir(), "made", "here"), "file URL": "file://" + filepath.ToSlash(t.TempDir()), "object store": objectStore(t), "folder of an object store": objectStore(t) + "&prefix=/a/b",
	}, func(t *testing.T, location string) {
		ctx := t.Context()
		s := must(OpenStorage(ctx, location))
		defer s.Close()
		require.EqualValues(t, 10, must(s.Write(ctx, "a/b", strings.NewReader("0123456789"))))
		for _, c := range []struct {
			from, length int64
			want         string
		}{{0, -1, "0123456789"}, {3, 4, "3456"}, {8, 10, "89"}, {10, -1, ""}} {
			r := must(s.Open(ctx, "a/b", c.from, c.length))
			data := must(io.ReadAll(r))
			require.NoError(t, r.Close())
			require.Equal(t, c.want, string(data))
		}
		must(s.Write(ctx, "empty", strings.NewReader("")))
		for _, length := range []int64{-1, 0, 5} {
			r := must(s.Open(ctx, "empty", 0, length))
			data := must(io.ReadAll(r))
			require.NoError(t, r.Close())
			require.Empty(t, data)
		}
		require.NoError(t, s.Delete(ctx, "empty"))
		b := must(s.Stat(ctx, "a/b"))
		require.EqualValues(t, 10, b.Size)
		require.False(t, b.Modified.IsZero())

		created := must(s.Create(ctx, "a/b", strings.NewReader("x")))
		require.False(t, created)
		created = must(s.Create(ctx, "c", strings.NewReader("x")))
		require.True(t, created)

		// A write that is given up leaves the old content in place.
		_, err := s.Write(ctx, "a/b", brokenReader{strings.NewReader("new")})
		require.ErrorIs(t, err, errBroken)
		require.NotErrorIs(t, err, ErrStorage, "it is not the storage's fault")
		_, err = s.Write(ctx, "d", brokenReader{strings.NewReader("new")})
		require.ErrorIs(t, err, errBroken)
		ended, end := context.WithCancel(ctx)
		end()
		_, err = s.Write(ended, "d", strings.NewReader("new"))
		require.Error(t, err)
		var keys []string
		require.NoError(t, s.List(ctx, "", func(b Blob) error {
			keys = append(keys, b.Key)
			return nil
		}))
		require.Equal(t, []string{"a/b", "c"}, keys)
		b = must(s.Stat(ctx, "a/b"))
		require.EqualValues(t, 10, b.Size)

		require.NoError(t, s.Delete(ctx, "a/b"))
		require.NoError(t, s.Delete(ctx, "a/b"))
		_, err = s.Open(ctx, "a/b", 0, -1)
		require.ErrorIs(t, err, ErrGone)
		_, err = s.Stat(ctx, "a/b")
		require.ErrorIs(t, err, ErrGone)
	})
}

func TestOpenStorageRefuses(t *testing.T) {
	t.Parallel()
	for _, location := range []string{
		"", "file://", "file://host/x", "nosuch://bucket", "file://%zz",
		"s3://", "s3://key:secret@bucket", "s3://bucket/folder", "s3://bucket?endpoint=minio:9000", "s3://bucket?nonsense=1",
	} {
		_, err := OpenStorage(t.Context(), location)
		require.Error(t, err, location)
	}
}

func TestStorageIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "files")
	s := must(OpenStorage(t.Context(), dir))
	defer s.Close()
	must(s.Write(t.Context(), "key", strings.NewReader("picture")))
	require.Zero(t, must(os.Stat(dir)).Mode().Perm()&0o077)
}

// A listing goes on where other hubs write and delete files meanwhile.
func TestListWhileOthersWrite(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Embedded(t)).storage
	must(s.Write(t.Context(), "output/first", strings.NewReader("stays")))
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for n := range 4 {
		writing.Go(func() {
			key := fmt.Sprintf("output/other-%d", n)
			for ctx.Err() == nil {
				if _, err := s.Write(ctx, key, strings.NewReader("comes and goes")); err == nil {
					_ = s.Delete(ctx, key)
				}
			}
		})
	}
	t.Cleanup(writing.Wait)
	t.Cleanup(stop)
	for range 3000 {
		var keys []string
		require.NoError(t, s.List(t.Context(), "output/", func(b Blob) error { keys = append(keys, b.Key); return nil }))
		require.Contains(t, keys, "output/first")
		require.Len(t, slices.Compact(slices.Clone(keys)), len(keys), "each once")
	}
}

// A file costs no more memory than what is read at once, and that only once.
func TestWriteAllocatesLittle(t *testing.T) { //nolint:paralleltest // it measures the whole process
	s := must(OpenStorage(t.Context(), t.TempDir()))
	defer s.Close()
	write := func(n int) {
		must(s.Write(t.Context(), fmt.Sprintf("output/%d", n), strings.NewReader("picture")))
	}
	write(0)
	const files = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range files {
		write(n)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/files, uint64(2*copyBuffer))
}
