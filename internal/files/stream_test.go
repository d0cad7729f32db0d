package files

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// meter is a large file that measures how far its reader is ahead of the receiver.
// That much is held in memory.
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

// A write that broke off leaves no parts behind. They would cost money and never
// be seen.
func TestObjectStoreKeepsNoPartsOfABrokenWrite(t *testing.T) {
	sideBySide(t, map[string]func(*sink, *meter){
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

// A small file that broke off must not become a whole one either.
func TestObjectStoreKeepsNoBrokenSmallFile(t *testing.T) {
	t.Parallel()
	s, storage := openSink(t)
	_, err := storage.Write(t.Context(), "a", brokenReader{strings.NewReader("begin")})
	require.ErrorIs(t, err, errBroken)
	require.Zero(t, s.whole.Load())
}
