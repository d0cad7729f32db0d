package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only so many answers to a caller, and to all, are compressed at a time, whatever their
// readers do.
func TestCompressedAnswersAreBounded(t *testing.T) {
	t.Parallel()
	var c compressed
	answer := func(share, accepts, kind string, length int) (plain bool, done func()) {
		rec := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept-Encoding", accepts)
		w, done := c.bound(rec, r, share)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", strconv.Itoa(length))
		w.Header().Set("Cache-Control", "no-cache")
		_, err := io.WriteString(w, "{}")
		require.NoError(t, err)
		values := rec.Header().Values("Cache-Control")
		return len(values) == 2 && values[1] == "no-transform", done
	}
	const json = "application/json; charset=utf-8"
	var dones []func()
	for n := range compressedAtOnce {
		plain, done := answer(strconv.Itoa(n/compressedOfOne), "gzip", json, 1000)
		require.False(t, plain)
		dones = append(dones, done)
	}
	for _, share := range []string{"0", "another"} {
		plain, done := answer(share, "zstd", json, 1000)
		require.True(t, plain, share)
		done()
	}
	for _, other := range []struct {
		accepts, kind string
		length        int
	}{{"", json, 1000}, {"gzip", "image/png", 1000}, {"gzip", json, 100}} {
		plain, done := answer("0", other.accepts, other.kind, other.length)
		require.False(t, plain, "it is never compressed")
		done()
	}
	dones[0]()
	plain, done := answer("0", "gzip", json, 1000)
	require.False(t, plain)
	done()
	plain, done = answer("0", "gzip", "text/event-stream", 1000)
	require.True(t, plain, "events would take a place for hours")
	done()
	for _, done := range dones[1:] {
		done()
	}
	require.Zero(t, c.all)
	require.Empty(t, c.of)
}
