package webui

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

const library = "/assets/lib/vue/dist/vue.esm-browser.prod.js"

// build is what an instance serves: the body of a file by its path.
type build struct {
	mu     sync.Mutex
	page   string // the tag of the page
	bodies map[string]string
}

func (b *build) set(path, body string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bodies[path] = body
}

func (b *build) replace(page string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.page = page
}

func (b *build) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, ok := b.bodies[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/javascript")
	h.Set("Last-Modified", "Sun, 22 Nov 2026 04:16:37 GMT")
	h.Set("Etag", `"18ea42ef3619fdd9-58daf2"`)
	if r.URL.Path == "/" {
		h.Set("Etag", b.page)
	}
	_, _ = io.WriteString(w, body)
}

// header is that of the page.
func (b *build) header() http.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	return http.Header{"Etag": {b.page}, "Last-Modified": {"Sun, 22 Nov 2026 04:16:37 GMT"}}
}

func text(t *testing.T, f *Files, from *instance, path string) string {
	t.Helper()
	file := f.Get(t.Context(), from.Client, path)
	if file == nil {
		return "-"
	}
	return string(file.plain.body)
}

// A file without a hash is kept of the source of the page only, and only as a
// part of the page that the source gives.
func TestNamedFilesBelongToAPage(t *testing.T) {
	t.Parallel()
	b := &build{page: `"1"`, bodies: map[string]string{"/": "", library: "one()", script: "hashed()"}}
	from := newInstance(t, b.ServeHTTP)
	other := newInstance(t, b.ServeHTTP)
	f := newFiles()
	require.Equal(t, "-", text(t, f, from, library), "no source is known")
	require.True(t, f.become(from.Client))
	require.False(t, f.become(from.Client))
	require.Equal(t, "-", text(t, f, from, library), "no page was seen")
	f.Page(from.Client, b.header())
	for range 3 {
		require.Equal(t, "one()", text(t, f, from, library))
		require.Equal(t, "hashed()", text(t, f, from, script))
		f.Page(from.Client, b.header())
		f.Page(other.Client, http.Header{"Etag": {`"x"`}, "Last-Modified": {"x"}})
	}
	require.Equal(t, 1, from.times(library))
	require.Equal(t, "-", text(t, f, other, library), "it is not the source")

	b.set(library, "two()")
	b.replace(`"2"`)
	require.Equal(t, "one()", text(t, f, from, library), "an open page stays what it is")
	f.Page(from.Client, b.header())
	require.Equal(t, "two()", text(t, f, from, library))
	require.Equal(t, 1, from.times(script), "a hash says that nothing has changed")

	f.Page(from.Client, http.Header{"Etag": {`"2"`}})
	require.Equal(t, "-", text(t, f, from, library), "a page that cannot be told apart")

	f.Page(from.Client, b.header())
	require.Equal(t, "two()", text(t, f, from, library))
	require.True(t, f.become(other.Client))
	require.Equal(t, "-", text(t, f, from, library))
	f.Page(other.Client, b.header())
	require.Equal(t, "two()", text(t, f, other, library))
	f.Forget(other.Client)
	require.Equal(t, "-", text(t, f, other, library))
	require.Zero(t, f.source)
}

// After some time the instance is asked again. Nobody waits for that, and what
// has not changed stays compressed.
func TestNamedFilesAge(t *testing.T) {
	t.Parallel()
	b := &build{page: `"1"`, bodies: map[string]string{library: strings.Repeat("one();", 1000)}}
	from := newInstance(t, b.ServeHTTP)
	f := newFiles()
	f.become(from.Client)
	f.Page(from.Client, b.header())
	file := packed(t, f, from, library)
	age := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for e := f.used.Front(); e != nil; e = e.Next() {
			e.Value.(*File).checked = time.Now().Add(-2 * maxAge)
		}
	}
	young := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		e := f.files[key{from.Client, library}]
		return e == nil || time.Since(e.Value.(*File).checked) < maxAge
	}
	age()
	require.Same(t, file, f.Get(t.Context(), from.Client, library))
	require.Eventually(t, young, time.Minute, time.Millisecond)
	require.Same(t, file, f.Get(t.Context(), from.Client, library))
	require.Equal(t, 2, from.times(library))

	b.set(library, "two()")
	age()
	require.Same(t, file, f.Get(t.Context(), from.Client, library), "what is there comes first")
	require.Eventually(t, young, time.Minute, time.Millisecond)
	require.Equal(t, "two()", text(t, f, from, library))
	require.EqualValues(t, len("two()"), f.size)

	b.mu.Lock()
	delete(b.bodies, library)
	b.mu.Unlock()
	age()
	require.Equal(t, "two()", text(t, f, from, library))
	require.Eventually(t, young, time.Minute, time.Millisecond)
	require.Equal(t, "-", text(t, f, from, library), "it is gone")
	require.Zero(t, f.size)
}

// A route of a custom node below the folder of the build can say something else
// each time.
func TestAnswersOfAProgramAreNotKept(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Header{
		"no tag": {"Last-Modified": {"x"}}, "no date": {"Etag": {`"1"`}},
	} {
		from := newInstance(t, func(w http.ResponseWriter, _ *http.Request) {
			for name := range h {
				w.Header().Set(name, h.Get(name))
			}
		})
		f := newFiles()
		f.become(from.Client)
		f.Page(from.Client, http.Header{"Etag": {`"1"`}, "Last-Modified": {"x"}})
		require.Nil(t, f.Get(t.Context(), from.Client, "/assets/nodes.json"), name)
		require.Empty(t, f.files, name)
	}
}

// The page of web UI 1.27 lists its libraries; they are read ahead, too.
func TestReadAheadOfLibraries(t *testing.T) {
	t.Parallel()
	page := `<script type="importmap">{"imports":{"vue":"./assets/lib/vue/dist/vue.esm-browser.prod.js","primevue/a":"./assets/lib/primevue/a/index.mjs",
"x":"./assets/lib/../../secret.js","y":"./assets/lib/y.py","z":"/assets/z.json"}}</script><script src="./assets/index-vtow2bzT.js"></script>`
	b := &build{page: `"1"`, bodies: map[string]string{"/": page, library: `"./assets/lib/more.js"`, script: `import("./assets/lib/late.js")`, "/assets/lib/primevue/a/index.mjs": ""}}
	from := newInstance(t, b.ServeHTTP)
	f := newFiles()
	defer ahead(t, f, from)()
	require.Eventually(t, func() bool { return from.times("/assets/lib/primevue/a/index.mjs") == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, `"./assets/lib/more.js"`, text(t, f, from, library))
	from.mu.Lock()
	defer from.mu.Unlock()
	require.Equal(t, map[string]int{"/": 1, library: 1, script: 1, "/assets/lib/primevue/a/index.mjs": 1}, from.asked)
}

// ahead has the files of an instance read ahead until it is told to stop.
func ahead(t *testing.T, f *Files, from *instance) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { f.Run(ctx, func() *comfyui.Client { return from.Client }) })
	f.Changed()
	return func() { cancel(); work.Wait() }
}

// What the page will ask for is there before the first visitor, and each file
// was asked for once.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"/":                          `<script type="module" crossorigin src="./assets/index-vtow2bzT.js"></script><link href="./assets/main-v8NNy4A_.css">`,
		script:                       `import{a}from"./vendor-Yx09ri5b.js";const d=["assets/View-CNdynQT1.js","assets/index-vtow2bzT.js"]//# sourceMappingURL=index-vtow2bzT.js.map`,
		"/assets/main-v8NNy4A_.css":  `@font-face{src:url(./icons-C6QP2o4f.woff2)format("woff2"),url(./icons-C6QP2o4f.ttf)}`,
		"/assets/vendor-Yx09ri5b.js": "", "/assets/View-CNdynQT1.js": "import(`./gone-CNdynQT2.js`)", "/assets/icons-C6QP2o4f.woff2": "font",
	}
	from := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		body, ok := files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, body)
	})
	f := newFiles()
	defer ahead(t, f, from)()
	require.Eventually(t, func() bool { return from.times("/assets/gone-CNdynQT2.js") == 1 }, time.Minute, time.Millisecond)
	for path := range files {
		require.Equal(t, 1, from.times(path), path)
		if path != "/" {
			require.NotNil(t, f.Get(t.Context(), from.Client, path), path)
			require.Equal(t, 1, from.times(path), path)
		}
	}
	from.mu.Lock()
	require.Len(t, from.asked, len(files)+1, "and nothing else")
	from.mu.Unlock()
	require.False(t, f.become(from.Client))
	f.Forget(from.Client)
	require.True(t, f.become(from.Client), "the next process has another build")
}

// A page without end is read ahead up to half of the room only.
func TestReadAheadIsBounded(t *testing.T) {
	t.Parallel()
	n := 0
	from := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		n++ // it is asked for one at a time
		_, _ = io.WriteString(w, fmt.Sprintf(`"./more-%08d.js"`, n)+strings.Repeat(" ", 4<<20))
	})
	f := newFiles()
	f.warm(t.Context(), from.Client)
	require.LessOrEqual(t, f.size, int64(maxSize/2+5<<20))
	require.NotEmpty(t, f.files)
}
