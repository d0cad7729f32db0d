package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	_ "github.com/comfyhub/comfyhub/internal/files/s3"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		fmt.Fprintln(os.Stderr, victim(dir))
		os.Exit(1)
	}
	for name, value := range objectStoreCredentials {
		_ = os.Setenv(name, value)
	}
	leaktest.Main(m)
}

const tenant = "default"

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// painted returns a PNG of size bytes, padded behind its end.
func painted(t testing.TB, width, height int, c color.NRGBA, size int) []byte {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := 0; i < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3] = c.R, c.G, c.B, c.A
	}
	var buf bytes.Buffer
	require.NoError(t, png.Encode(&buf, img))
	if size > 0 {
		require.LessOrEqual(t, buf.Len(), size)
		buf.Write(make([]byte, size-buf.Len()))
	}
	return buf.Bytes()
}

func (s *Store) mustUpload(t testing.TB, ref job.FileRef, data string) job.FileRef {
	t.Helper()
	return must(s.Upload(t.Context(), tenant, ref, false, strings.NewReader(data)))
}

func (s *Store) mustRead(t testing.TB, ref job.FileRef) string {
	t.Helper()
	e := must(s.Resolve(t.Context(), tenant, ref))
	body := must(s.Open(t.Context(), e, 0, -1))
	defer body.Close()
	data := must(io.ReadAll(body))
	require.Equal(t, int64(len(data)), e.Size)
	return string(data)
}

// instance is a ComfyUI as far as its files are concerned: folders in memory behind the hooks of
// this package. It counts the requests it gets.
type instance struct {
	mu      sync.Mutex
	files   map[job.FileRef]instanceFile
	fetches int
	stats   int
	views   int
	uploads int
	clock   time.Time
	// hook changes an answer of fetch, or may be nil.
	hook func(*http.Response)
	// plain instances send no ETag.
	plain bool
}

type instanceFile struct {
	data     []byte
	modified time.Time
}

func newInstance() *instance {
	return &instance{files: map[job.FileRef]instanceFile{}, clock: time.Unix(1_790_000_000, 123456789)}
}

func (i *instance) put(ref job.FileRef, data string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.clock = i.clock.Add(time.Second)
	i.files[ref] = instanceFile{[]byte(data), i.clock}
}

func (i *instance) drop(ref job.FileRef) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.files, ref)
}

func (i *instance) get(ref job.FileRef) (instanceFile, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f, ok := i.files[ref]
	return f, ok
}

// source names a file of the instance the way its hub knows it.
func (i *instance) source(name string, ref job.FileRef) Source {
	src := Source{Instance: name, Boot: "b1", Type: ref.Type, Subfolder: ref.Subfolder, Filename: ref.Filename}
	if f, ok := i.get(ref); ok && !i.plain {
		src.ETag = makeETag(f.modified, int64(len(f.data)))
	}
	return src
}

// fetch is a Fetch with the ranges and conditions of net/http. That is enough here, because other
// tests check on stored files that the hub follows ComfyUI's rules.
func (i *instance) fetch(ctx context.Context, src Source, header http.Header) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.fetches++
	hook := i.hook
	i.mu.Unlock()
	f, ok := i.get(src.Ref())
	rec := httptest.NewRecorder()
	if !ok {
		rec.WriteHeader(http.StatusNotFound)
	} else {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/view", nil)
		maps.Copy(r.Header, header)
		if !i.plain {
			rec.Header().Set("Etag", makeETag(f.modified, int64(len(f.data))))
		}
		rec.Header().Set("Content-Type", "image/png")
		http.ServeContent(rec, r, "", f.modified, bytes.NewReader(f.data))
	}
	resp := rec.Result()
	if resp.StatusCode == http.StatusNotModified {
		// ComfyUI's server sends it there as well.
		resp.Header.Set("Last-Modified", f.modified.UTC().Format(http.TimeFormat))
	}
	if hook != nil {
		hook(resp)
	}
	return resp, nil
}

func (i *instance) Stat(_ context.Context, ref job.FileRef) (comfyui.FileInfo, bool, error) {
	i.mu.Lock()
	i.stats++
	i.mu.Unlock()
	f, ok := i.get(ref)
	if !ok {
		return comfyui.FileInfo{Size: -1}, false, nil
	}
	info := comfyui.FileInfo{ETag: makeETag(f.modified, int64(len(f.data))), Size: int64(len(f.data))}
	if i.plain {
		info.ETag = ""
	}
	return info, true, nil
}

func (i *instance) View(_ context.Context, ref job.FileRef, _ http.Header) (*http.Response, error) {
	f, ok := i.get(ref)
	if !ok {
		return nil, ErrGone
	}
	i.mu.Lock()
	i.views++
	i.mu.Unlock()
	return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(f.data)), Body: io.NopCloser(bytes.NewReader(f.data))}, nil
}

func (i *instance) Put(context.Context, string, string, io.Reader, int64) error { return nil }

func (i *instance) Upload(_ context.Context, ref job.FileRef, overwrite bool, body io.Reader, size int64) (job.FileRef, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return job.FileRef{}, err
	}
	if int64(len(data)) != size {
		return job.FileRef{}, io.ErrUnexpectedEOF
	}
	if old, taken := i.get(ref); taken && !overwrite && !bytes.Equal(old.data, data) {
		ref.Filename += " (1)"
	}
	i.put(ref, string(data))
	i.mu.Lock()
	i.uploads++
	i.mu.Unlock()
	return ref, nil
}

func newCollector(t testing.TB, s *Store, i *instance) *Collector {
	t.Helper()
	c := NewCollector(s, i.fetch, CollectorOptions{})
	t.Cleanup(c.Close)
	return c
}

// viewServer serves only /view.
func viewServer(t testing.TB, s *Store) *httptest.Server {
	t.Helper()
	view := NewView(s, newInstance().fetch, ViewOptions{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { view.ServeView(w, r, tenant, "a") }))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.Client().CloseIdleConnections)
	return srv
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// objectStoreCredentials are for the fake object store, which accepts any.
var objectStoreCredentials = map[string]string{
	"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
	"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_REGION": "",
}

// objectStore returns the location of a new bucket, which is reached through the
// real driver.
func objectStore(t testing.TB) string {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("bucket"))
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	return "s3://bucket?endpoint=" + srv.URL
}

// AllotOutput is AllotOutputs for one file.
func (s *Store) AllotOutput(ctx context.Context, tenant string, src Source) (job.FileRef, error) {
	refs, _, err := s.AllotOutputs(ctx, tenant, []Source{src})
	if err != nil {
		return job.FileRef{}, err
	}
	return refs[0], nil
}

// folders returns the subfolders in which a tenant has outputs.
func (s *Store) folders(t testing.TB, tenant string) []string {
	t.Helper()
	return slices.Sorted(slices.Values(must(s.db.Client().SMembers(t.Context(), s.keys.folders(tenant, job.TypeOutput)).Result())))
}

// sharing is the store's hub among the others.
func (s *Store) sharing() *Sharing { return NewSharing(s.db, s.storage) }

// eachStore runs a test on every kind of Redis with a folder, and with an
// object store.
func eachStore(t *testing.T, run func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) { run(t, newStore(t, db)) })
	t.Run("object store", func(t *testing.T) {
		t.Parallel()
		run(t, newStoreAt(t, redistest.Embedded(t), objectStore(t)+"&prefix=hub"))
	})
}

// parallelStore is a store on the embedded Redis for a test that runs beside others.
func parallelStore(t *testing.T) *Store {
	t.Helper()
	t.Parallel()
	return newStore(t, redistest.Embedded(t))
}

// newStore returns a store in a folder of the test.
func newStore(t testing.TB, db *redis.DB) *Store {
	t.Helper()
	return newStoreAt(t, db, t.TempDir())
}

func newStoreAt(t testing.TB, db *redis.DB, location string) *Store {
	t.Helper()
	storage := must(OpenStorage(t.Context(), location))
	t.Cleanup(func() { _ = storage.Close() })
	return New(db, storage, Options{SpoolDir: t.TempDir()})
}
