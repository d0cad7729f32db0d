package webui

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const script = "/assets/index-vtow2bzT.js"

// instance is a scripted one. It counts what it is asked.
type instance struct {
	*comfyui.Client
	mu    sync.Mutex
	asked map[string]int
}

func newInstance(t testing.TB, answer http.HandlerFunc) *instance {
	t.Helper()
	i := &instance{asked: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.asked[r.URL.Path]++
		i.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	i.Client = must.Get(comfyui.NewClient(server.URL, comfyui.Options{}))(t)
	t.Cleanup(i.Close)
	return i
}

func (i *instance) times(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// scripts answers every path with a script that aiohttp could have sent.
func scripts(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/javascript")
		h.Set("Cache-Control", "no-store")
		h.Set("Etag", `"18ea42ef3619fdd9-58daf2"`)
		h.Set("Last-Modified", "Sun, 22 Nov 2026 04:16:37 GMT")
		_, _ = io.WriteString(w, body)
	}
}

func newFiles() *Files { return New(slog.New(slog.DiscardHandler)) }

// packed waits until a file has its compressed forms.
func packed(t testing.TB, f *Files, from *instance, path string) *File {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { f.packAll(ctx) })
	defer work.Wait()
	defer stop()
	file := f.Get(t.Context(), from.Client, path)
	require.NotNil(t, file)
	require.Eventually(t, func() bool { return file.packed.Load() != nil }, time.Minute, time.Millisecond)
	return file
}

func serve(file *File, method string, header http.Header) *http.Response {
	r := httptest.NewRequest(method, script, nil)
	r.Header = header
	w := httptest.NewRecorder()
	if err := file.Serve(w, r, slog.New(slog.DiscardHandler), nil); err != nil {
		panic(err)
	}
	return w.Result()
}

func unpack(t testing.TB, encoding string, body io.Reader) string {
	t.Helper()
	switch encoding {
	case "zstd":
		dec := must.Get(zstd.NewReader(body, zstd.WithDecoderMaxWindow(maxWindow)))(t)
		defer dec.Close()
		body = dec
	case "gzip":
		dec := must.Get(gzip.NewReader(body))(t)
		body = dec
	}
	text := must.Get(io.ReadAll(body))(t)
	return string(text)
}

// However many ask, an instance is asked once.
func TestFirstAskersShareOneQuestion(t *testing.T) {
	t.Parallel()
	body, release := strings.Repeat("one();", 1000), make(chan struct{})
	from := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		scripts(body)(w, r)
	})
	f := newFiles()
	var askers sync.WaitGroup
	for range 20 {
		askers.Go(func() {
			// A file that comes late is not waited for.
			if file := f.Get(t.Context(), from.Client, script); file != nil && string(file.plain.body) != body {
				t.Error("another file")
			}
		})
	}
	require.Eventually(t, func() bool { return from.times(script) == 1 }, time.Minute, time.Millisecond)
	close(release)
	askers.Wait()
	require.Eventually(t, func() bool { return f.Get(t.Context(), from.Client, script) != nil }, time.Minute, time.Millisecond)
	require.Equal(t, 1, from.times(script))
}

// A visitor does not wait for an instance that drips, nor after it has gone.
func TestNobodyWaitsForLong(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	from := newInstance(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	f := newFiles()
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.Nil(t, f.Get(gone, from.Client, script))
	require.Nil(t, f.Get(t.Context(), from.Client, script))
	for n := 1; n < maxReading; n++ {
		require.Nil(t, f.Get(gone, from.Client, fmt.Sprintf("/assets/%d-vtow2bzT.js", n)))
	}
	require.Nil(t, f.Get(t.Context(), from.Client, "/assets/more-vtow2bzT.js"))
	require.Zero(t, from.times("/assets/more-vtow2bzT.js"))
}

// Nothing is kept but the whole of a file, as it is.
func TestWhatIsKept(t *testing.T) {
	big := strings.Repeat("x", maxFile)
	type row struct {
		answer http.HandlerFunc
		kept   bool
	}
	beside.Cases(t, map[string]row{
		"a script":   {scripts("one()"), true},
		"nothing":    {scripts(""), true},
		"one as big": {scripts(big), true},
		"too big":    {scripts(big + "x"), false},
		"not there":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, false},
		"a redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(http.StatusFound)
		}, false},
		"a part":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, false},
		"an error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, false},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		}, false},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip") }, false},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "one()")
		}, false},
	}, func(t *testing.T, c row) {
		from, f := newInstance(t, c.answer), newFiles()
		for range 2 {
			require.Equal(t, c.kept, f.Get(t.Context(), from.Client, script) != nil)
		}
		if !c.kept {
			require.Equal(t, 2, from.times(script), "what is not kept is asked for again")
			require.Empty(t, f.files)
		}
	})
}

// An instance is asked for a file by the hub alone: nothing of a visitor is in
// the question, so nothing can be in the answer.
func TestNothingOfAVisitorIsAsked(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	from := newInstance(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	require.NotNil(t, newFiles().Get(t.Context(), from.Client, script))
	require.Equal(t, http.Header{"User-Agent": {"ComfyHub"}}, <-seen)
}

// What one instance gave is never shown as a file of another one, nor after the
// connection to it has ended.
func TestAnInstanceSpeaksForItself(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hostile := "steal()"
	bad := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		scripts(hostile)(w, r)
	})
	good := newInstance(t, scripts("draw()"))
	f := newFiles()
	text := func(from *instance) string { return string(f.Get(t.Context(), from.Client, script).plain.body) }
	require.Equal(t, "steal()", text(bad))
	require.Equal(t, "draw()", text(good))
	mu.Lock()
	hostile = "harmless()"
	mu.Unlock()
	f.Forget(bad.Client)
	require.Equal(t, "harmless()", text(bad))
	require.Equal(t, "draw()", text(good))
	require.Equal(t, 1, good.times(script))
}

// What was on its way when the connection ended, or the page changed, is not kept.
func TestForgetWhileReading(t *testing.T) {
	t.Parallel()
	pageOf := func(tag string) http.Header { return http.Header{"Etag": {tag}, "Last-Modified": {"x"}} }
	for path, change := range map[string]func(f *Files, from *instance){
		script:  func(f *Files, from *instance) { f.Forget(from.Client) },
		library: func(f *Files, from *instance) { f.Page(from.Client, pageOf(`"2"`)) },
	} {
		asked, release := make(chan struct{}, 2), make(chan struct{})
		from := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-release
			scripts("old()")(w, r)
		})
		f := newFiles()
		f.become(from.Client)
		f.Page(from.Client, pageOf(`"1"`))
		got := make(chan *File, 1)
		go func() { got <- f.Get(t.Context(), from.Client, path) }()
		<-asked
		change(f, from)
		close(release)
		require.Nil(t, <-got)
		require.Empty(t, f.files)
		require.Zero(t, f.size)
	}
}

// The bounds hold, and the file that is in use stays.
func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	from := newInstance(t, scripts(strings.Repeat("x", 1<<20)))
	f := newFiles()
	for n := range maxSize>>20 + 5 {
		require.NotNil(t, f.Get(t.Context(), from.Client, fmt.Sprintf("/assets/%d-vtow2bzT.js", n)))
		require.NotNil(t, f.Get(t.Context(), from.Client, "/assets/0-vtow2bzT.js"))
		require.LessOrEqual(t, f.size, int64(maxSize))
	}
	require.Equal(t, 1, from.times("/assets/0-vtow2bzT.js"))
	require.Len(t, f.files, maxSize>>20)
	require.Equal(t, maxSize>>20, f.used.Len())

	small := newInstance(t, scripts("x"))
	f = newFiles()
	for n := range maxFiles + 5 {
		f.mu.Lock()
		f.add(&File{key: key{small.Client, fmt.Sprint(n)}, plain: form{body: []byte("x")}})
		f.mu.Unlock()
	}
	require.Len(t, f.files, maxFiles)
	require.EqualValues(t, maxFiles, f.size)
}

// Forms that are made count, and one that comes late counts for nothing.
func TestSizeWithForms(t *testing.T) {
	t.Parallel()
	from := newInstance(t, scripts(strings.Repeat("one();", 10000)))
	f := newFiles()
	file := packed(t, f, from, script)
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.size == file.size() && f.size > int64(len(file.plain.body))
	}, time.Minute, time.Millisecond)
	f.Forget(from.Client)
	require.Zero(t, f.size)
	f.keepPacked(file, []form{{"zstd", []byte("late")}})
	require.Zero(t, f.size)
}

// Browsers refuse zstd whose window is larger than eight megabytes.
func TestWindow(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("const a = 1;"), maxFile/12)
	forms := must.Get(new(packer).pack(body))(t)
	require.Len(t, forms, 2)
	var header zstd.Header
	require.NoError(t, header.Decode(forms[0].body))
	require.False(t, header.SingleSegment)
	require.LessOrEqual(t, header.WindowSize, uint64(maxWindow))
	for _, p := range forms {
		require.Len(t, unpack(t, p.encoding, bytes.NewReader(p.body)), len(body), p.encoding)
	}
}
