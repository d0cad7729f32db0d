package files

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// What a server sends in place of a picture does not become the picture of a prompt that
// went well.
func TestOutputIsWhatItsNamePromises(t *testing.T) {
	const page = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"
	type row struct{ file, data, says string }
	sideBySide(t, map[string]row{
		"a page for a picture":     {"a.png", page, "a page in place of a file of type image"},
		"a page for a video":       {"a.mp4", page, "a page in place of a file of type video"},
		"nothing for a picture":    {"a.png", "", "an empty image"},
		"nothing for a sound":      {"a.flac", "", "an empty audio"},
		"a page for a page":        {"a.html", page, ""},
		"nothing for a text":       {"a.txt", "", ""},
		"a drawing with a comment": {"a.svg", "<!-- made by hand --><svg/>", ""},
		"a picture":                {"a.png", "\x89PNG\r\n\x1a\n", ""},
	}, func(t *testing.T, c row) {
		s, i := newStore(t, redistest.Embedded(t)), newInstance()
		copies := NewCollector(s, i.fetch, CollectorOptions{Patience: Patience{Contact: time.Millisecond}})
		t.Cleanup(copies.Close)
		ref := job.FileRef{Type: job.TypeOutput, Filename: c.file}
		i.put(ref, c.data)
		names, wait, err := NewTransfer(s, copies, nil, slog.New(slog.DiscardHandler)).
			Collect(t.Context(), tenant, []job.FileRef{ref}, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
		require.NoError(t, err)
		err = wait(t.Context())
		if c.says != "" {
			require.ErrorIs(t, err, ErrInstance)
			require.ErrorContains(t, err, c.says)
			return
		}
		require.NoError(t, err)
		require.Equal(t, c.data, s.mustRead(t, names[0]))
	})
}

// dripping sends a few bytes now and then.
type dripping struct {
	left  int
	pause time.Duration
	size  int
	ctx   context.Context
}

func (d *dripping) Read(p []byte) (int, error) {
	select {
	case <-time.After(d.pause):
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
	n := min(d.size, d.left, len(p))
	if d.left -= n; n == 0 {
		return 0, io.EOF
	}
	return copy(p, bytes.Repeat([]byte{'x'}, n)), nil
}

func (d *dripping) Close() error { return nil }

// A file of which a byte comes every five seconds is given up, and one that comes over a
// slow line is not, however long it takes.
func TestFileThatDrips(t *testing.T) {
	type row struct {
		total, size int
		pause       time.Duration
		lost        bool
	}
	sideBySide(t, map[string]row{
		"it drips":       {1000, 1, 5 * time.Second, true},
		"a slow line":    {4 << 20, 6 << 10, time.Second, false},
		"a short file":   {5, 1, 5 * time.Second, false},
		"it grows tired": {1 << 20, 1, 19 * time.Second, true},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			fetch := func(ctx context.Context, _ Source, _ http.Header) (*http.Response, error) {
				body := &dripping{left: c.total, pause: c.pause, size: c.size, ctx: ctx}
				header := http.Header{"Etag": {strings.Repeat("e", 8)}}
				return &http.Response{StatusCode: http.StatusOK, Header: header, ContentLength: int64(c.total), Body: body}, nil
			}
			began := time.Now()
			d := must(startDownload(t.Context(), fetch, Source{Filename: "a.png"}, Patience{}))
			defer d.drop()
			got, err := io.ReadAll(d)
			if c.lost {
				require.ErrorIs(t, err, ErrInstance)
				require.Less(t, time.Since(began), 2*time.Minute)
				return
			}
			require.NoError(t, err)
			require.Len(t, got, c.total)
		})
	})
}
