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
