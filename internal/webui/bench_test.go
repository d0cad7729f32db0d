package webui

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// BenchmarkVisit loads a build of forty scripts as a browser does, once with each
// file asked of an instance and compressed for the visitor, as it would be
// without this package, and once from what is kept. It prints the ratio.
func BenchmarkVisit(b *testing.B) {
	var script bytes.Buffer
	for n := range 10_000 {
		fmt.Fprintf(&script, "function f%d(a,b){return a.call(this,b,%d)}\n", n, n*n)
	}
	from := newInstance(b, scripts(script.String()))
	f := newFiles()
	const files = 40
	paths := make([]string, files)
	for n := range paths {
		paths[n] = fmt.Sprintf("/assets/part-%08d.js", n)
		packed(b, f, from, paths[n])
	}
	asked := func() {
		for _, path := range paths {
			resp, err := from.Ask(b.Context(), path, nil)
			require.NoError(b, err)
			enc, err := zstd.NewWriter(io.Discard, zstd.WithEncoderConcurrency(1))
			require.NoError(b, err)
			_, err = io.Copy(enc, resp.Body)
			require.NoError(b, err)
			require.NoError(b, enc.Close())
			resp.Body.Close()
		}
	}
	kept := func() {
		for _, path := range paths {
			resp := serve(f.Get(b.Context(), from.Client, path), http.MethodGet, http.Header{"Accept-Encoding": {"zstd"}})
			_, err := io.Copy(io.Discard, resp.Body)
			require.NoError(b, err)
		}
	}
	var slow, fast time.Duration
	for b.Loop() {
		begun := time.Now()
		asked()
		between := time.Now()
		kept()
		slow, fast = slow+between.Sub(begun), fast+time.Since(between)
	}
	b.ReportMetric(float64(slow.Microseconds())/float64(b.N), "asked-µs")
	b.ReportMetric(float64(fast.Microseconds())/float64(b.N), "kept-µs")
	b.ReportMetric(float64(fast)/float64(slow), "ratio")
}
