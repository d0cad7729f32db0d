package webui

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A file of a folder is read once for each content that it has, and compressed.
func TestLocal(t *testing.T) {
	t.Parallel()
	f := newFiles()
	body, reads := strings.Repeat("one();", 1000), 0
	read := func() ([]byte, error) { reads++; return []byte(body), nil }
	l := Local{Path: "/srv/ui/assets/a.js", Stamp: "1", Type: "application/javascript", Modified: time.Unix(1, 0), Size: int64(len(body))}
	for range 3 {
		file, err := f.Local(l, read)
		require.NoError(t, err)
		require.Equal(t, body, string(file.plain.body))
	}
	require.Equal(t, 1, reads)

	file := <-f.packs
	forms, err := new(packer).pack(file.plain.body)
	require.NoError(t, err)
	f.keepPacked(file, forms)
	file, err = f.Local(l, read)
	require.NoError(t, err)
	resp := serve(file, http.MethodGet, http.Header{"Accept-Encoding": {"zstd"}})
	require.Equal(t, `"1.zstd"`, resp.Header.Get("Etag"))
	require.Equal(t, body, unpack(t, "zstd", resp.Body))
	require.Equal(t, `"1"`, serve(file, http.MethodGet, http.Header{}).Header.Get("Etag"))

	body = strings.Repeat("two();", 1001)
	l.Stamp, l.Size = "2", int64(len(body))
	file, err = f.Local(l, read)
	require.NoError(t, err)
	require.Equal(t, body, string(file.plain.body))
	require.Len(t, f.files, 1)
	require.EqualValues(t, len(body), f.size)
}

// What cannot be compressed or read, or changes while it is read, is not kept.
func TestLocalsThatAreNotKept(t *testing.T) {
	t.Parallel()
	const script, picture = "application/javascript", "image/png"
	failed := errors.New("no such disk")
	for name, c := range map[string]struct {
		local Local
		size  int // of what is read
		err   error
	}{
		"a picture":      {local: Local{Type: picture, Size: 1000}, size: 1000},
		"small":          {local: Local{Type: script, Size: 100}, size: 100},
		"too large":      {local: Local{Type: script, Size: maxFile + 1}, size: maxFile + 1},
		"it grew":        {local: Local{Type: script, Size: 1000}, size: 1001},
		"it shrank":      {local: Local{Type: script, Size: 1000}, size: 10},
		"cannot be read": {local: Local{Type: script, Size: 1000}, err: failed},
	} {
		f := newFiles()
		file, err := f.Local(c.local, func() ([]byte, error) { return make([]byte, c.size), c.err })
		require.ErrorIs(t, err, c.err, name)
		require.Nil(t, file, name)
		require.Empty(t, f.files, name)
	}
}
