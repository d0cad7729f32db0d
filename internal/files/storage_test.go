package files

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestStorage(t *testing.T) {
	beside.Cases(t, map[string]string{
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

// A listing goes on even if other hubs write and delete files meanwhile.
func TestListWhileOthersWrite(t *testing.T) {
	s := parallelStore(t).storage
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
	write := func(n int) { must(s.Write(t.Context(), fmt.Sprintf("output/%d", n), strings.NewReader("picture"))) }
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

// What a gate makes fail fails as if the disk had: a blob is there whole or not at all.
func TestGate(t *testing.T) {
	t.Parallel()
	storage := must(OpenStorage(t.Context(), t.TempDir()))
	errFull := errors.New("full")
	refused := map[Step]bool{}
	storage.Behind(func(_ context.Context, step Step, bytes int) error {
		if refused[step] && (step != StepWrite || bytes > 0) {
			return errFull
		}
		return nil
	})
	write := func() error {
		_, err := storage.Write(t.Context(), "a/b", strings.NewReader("text"))
		return err
	}
	for _, step := range []Step{StepWrite, StepName} {
		refused[step] = true
		require.ErrorIs(t, write(), errFull, step)
		require.ErrorIs(t, write(), ErrStorage, step)
		delete(refused, step)
		_, err := storage.Stat(t.Context(), "a/b")
		require.ErrorIs(t, err, ErrGone, step)
	}
	// The caller must not be given a name that may not last.
	refused[StepKeep] = true
	require.ErrorIs(t, write(), errFull)
	delete(refused, StepKeep)
	require.NoError(t, write())
	body := must(storage.Open(t.Context(), "a/b", 0, -1))
	defer body.Close()
	refused[StepRead] = true
	_, err := io.ReadAll(body)
	require.ErrorIs(t, err, errFull)
	_, err = storage.Stat(t.Context(), "a/b")
	require.ErrorIs(t, err, ErrStorage)
	refused[StepDelete], refused[StepList] = true, true
	require.ErrorIs(t, storage.Delete(t.Context(), "a/b"), ErrStorage)
	require.ErrorIs(t, storage.List(t.Context(), "", func(Blob) error { return nil }), ErrStorage)
}

// sink is an object store that counts what it is sent and keeps nothing.
type sink struct {
	got     atomic.Int64
	uploads atomic.Int64
	aborted atomic.Int64
	whole   atomic.Int64
	broken  atomic.Bool // the parts are refused
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.uploads.Add(1)
		fmt.Fprint(w, `<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodPut:
		sum := md5.New()
		n, _ := io.Copy(io.MultiWriter(sum, tally{&s.got}), r.Body)
		if s.broken.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if !q.Has("uploadId") {
			s.whole.Add(n)
		}
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum.Sum(nil))+`"`)
	case r.Method == http.MethodPost:
		s.whole.Store(s.got.Load())
		fmt.Fprint(w, `<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>`)
	case r.Method == http.MethodDelete:
		s.aborted.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}
}

type tally struct{ n *atomic.Int64 }

func (c tally) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// meter is a large file that measures how far its reader is ahead of the receiver. That much is
// held in memory.
type meter struct {
	size, at, most int64
	got            func() int64
	broken         int64 // where it breaks off, or 0 for nowhere
}

func (m *meter) Read(p []byte) (int, error) {
	if m.broken > 0 && m.at >= m.broken {
		return 0, errBroken
	}
	if m.at == m.size {
		return 0, io.EOF
	}
	m.most = max(m.most, m.at-m.got())
	n := int(min(int64(len(p)), m.size-m.at, 1<<20))
	m.at += int64(n)
	return n, nil
}

func openSink(t *testing.T) (*sink, *Storage) {
	t.Helper()
	s := &sink{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	storage := must(OpenStorage(t.Context(), "s3://bucket?endpoint="+srv.URL))
	t.Cleanup(func() { _ = storage.Close() })
	return s, storage
}

// A video of 256 MiB needs the memory of a few parts, whatever its length.
func TestObjectStoreIsWrittenInParts(t *testing.T) {
	t.Parallel()
	s, storage := openSink(t)
	video := &meter{size: 256 << 20, got: s.got.Load}
	require.EqualValues(t, 256<<20, must(storage.Write(t.Context(), "a", video)))
	require.EqualValues(t, 256<<20, s.whole.Load())
	require.LessOrEqual(t, video.most, int64(8*partSize), "bytes read and not sent yet")
}

// A write that broke off leaves no parts behind. They would cost money and never be seen.
func TestObjectStoreKeepsNoPartsOfABrokenWrite(t *testing.T) {
	beside.Cases(t, map[string]func(*sink, *meter){
		"the source breaks off": func(_ *sink, m *meter) { m.broken = 100 << 20 },
		"the store refuses":     func(s *sink, _ *meter) { s.broken.Store(true) },
	}, func(t *testing.T, broken func(*sink, *meter)) {
		s, storage := openSink(t)
		video := &meter{size: 200 << 20, got: s.got.Load}
		broken(s, video)
		_, err := storage.Write(t.Context(), "a", video)
		require.Error(t, err)
		require.EqualValues(t, 1, s.uploads.Load())
		require.EqualValues(t, 1, s.aborted.Load())
		require.Zero(t, s.whole.Load())
	})
}
