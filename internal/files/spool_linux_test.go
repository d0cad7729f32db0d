package files

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fillingUp is a body in whose middle the disk of a spool fills up.
type fillingUp struct {
	t   *testing.T
	dir string // of the spool
}

func (f *fillingUp) Read(p []byte) (int, error) {
	full := must(os.OpenFile("/dev/full", os.O_WRONLY, 0))
	defer full.Close()
	const open = "/proc/self/fd"
	for _, e := range must(os.ReadDir(open)) {
		if to, err := os.Readlink(filepath.Join(open, e.Name())); err == nil && strings.HasPrefix(to, f.dir+"/") {
			require.NoError(f.t, syscall.Dup3(int(full.Fd()), must(strconv.Atoi(e.Name())), 0))
		}
	}
	return len(p), nil
}

// An upload that the hub's disk does not take is not the client's fault.
func TestSpoolWithoutRoom(t *testing.T) {
	s := parallelStore(t)
	s.spool = t.TempDir()
	_, err := s.Fetch(t.Context(), &fillingUp{t, s.spool}, 1<<20)
	require.ErrorIs(t, err, ErrStorage)
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = s.Fetch(t.Context(), io.MultiReader(bytes.NewReader(make([]byte, 100)), brokenReader{strings.NewReader("")}), 1<<20)
	require.NotErrorIs(t, err, ErrStorage)

	s.spool = filepath.Join(s.spool, "missing")
	rec := post(t, NewUploads(s, nil, UploadOptions{Logger: slog.New(slog.DiscardHandler)}).ServeImage, file("a.png", "x"))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code, rec.Body)
}
