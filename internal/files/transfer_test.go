package files

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// A copy that is waiting for Redis must not outlive the hub.
func TestCloseEndsACopyThatWaits(t *testing.T) {
	t.Parallel()
	server, log := redistest.Start(t), &logtest.Log{}
	s := newStore(t, redistest.Open(t, server.URL()))
	c := NewCollector(s, From(comfyui.NewClients()), CollectorOptions{})
	transfer := NewTransfer(s, c, nil, slog.New(slog.NewTextHandler(log, nil)))
	server.Stop()
	copied := make(chan error, 1)
	go func() {
		copied <- transfer.copy(context.WithoutCancel(t.Context()), tenant, job.FileRef{Type: job.TypeOutput, Filename: "x.png"}, Entry{}, nil)
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "copy an output") }, 60*time.Second, 10*time.Millisecond)
	c.Close()
	select {
	case err := <-copied:
		require.ErrorIs(t, err, redis.ErrUnavailable)
	case <-time.After(60 * time.Second):
		require.Fail(t, "the copy goes on")
	}
}

// While Redis answers but takes nothing, an output that is here is not fetched again.
func TestCopyWaitsForAFullRedis(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		db, full := redistest.Fillable(t)
		s, i := newStore(t, db), newInstance()
		c := newCollector(t, s, i)
		ref := job.FileRef{Type: job.TypeOutput, Filename: "a_00001_.png"}
		i.put(ref, "picture")
		i.hook = func(*http.Response) { full(true) }
		// As if the run were cached, so that it is fetched after it has its name.
		names, wait, err := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler)).
			Collect(t.Context(), tenant, []job.FileRef{ref}, nil, Target{Name: "gpu", Boot: "b1", Instance: i}, true)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		i.mu.Lock()
		require.Equal(t, 1, i.fetches)
		i.mu.Unlock()
		require.Len(t, s.blobKeys(t), 1)
		require.False(t, must(s.Resolve(t.Context(), tenant, names[0])).Stored())
		full(false)
		require.NoError(t, wait(t.Context()))
		require.Equal(t, 1, i.fetches)
		require.Len(t, s.blobKeys(t), 1)
		require.Equal(t, "picture", s.mustRead(t, names[0]))
		c.Close()
		require.NoError(t, db.Close())
	})
}

// The outputs of a run are named at once and copied in the background. An output
// that the instance does not have is lost.
func TestTransferCollects(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s, i := newStore(t, db), newInstance()
		c := NewCollector(s, i.fetch, CollectorOptions{Patience: Patience{Contact: time.Millisecond}})
		t.Cleanup(c.Close)
		transfer := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler))
		from := Target{Name: "gpu", Boot: "b1", Instance: i}
		there := job.FileRef{Type: job.TypeOutput, Filename: "a_00001_.png"}
		i.put(there, "picture")
		names, wait, err := transfer.Collect(t.Context(), tenant, []job.FileRef{there, {Type: "custom", Filename: "x"}}, nil, from, false)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
		require.Equal(t, "picture", s.mustRead(t, names[0]))
		again, wait, err := transfer.Collect(t.Context(), tenant, []job.FileRef{there}, nil, from, false)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
		require.Equal(t, names[:1], again, "the same names each time")
		_, _, err = transfer.Collect(t.Context(), tenant, []job.FileRef{{Type: job.TypeOutput, Filename: "gone.png"}}, nil, from, false)
		require.ErrorIs(t, err, ErrGone)
		i.hook = func(r *http.Response) { r.StatusCode = http.StatusInternalServerError }
		broken := job.FileRef{Type: job.TypeOutput, Filename: "b_00001_.png"}
		i.put(broken, "picture")
		_, wait, err = transfer.Collect(t.Context(), tenant, []job.FileRef{broken}, nil, from, false)
		require.NoError(t, err)
		require.ErrorContains(t, wait(t.Context()), "instance answers 500", "a copy that failed")
	})
}

// A panic while an output is copied is an error for callers waiting for that copy, and nothing
// more.
func TestPanicOfACopy(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		s, i, log := newStore(t, db), newInstance(), &logtest.Log{}
		logger := slog.New(slog.NewTextHandler(log, nil))
		broken := func(context.Context, Source, http.Header) (*http.Response, error) { panic("broken") }
		c := NewCollector(s, broken, CollectorOptions{Logger: logger})
		t.Cleanup(c.Close)
		ref := job.FileRef{Type: job.TypeOutput, Filename: "a_00001_.png"}
		i.put(ref, "picture")
		for _, copies := range []*Collector{c, nil} {
			_, wait, err := NewTransfer(s, copies, nil, logger).Collect(t.Context(), tenant, []job.FileRef{ref}, nil, Target{Name: "gpu", Instance: i}, false)
			require.NoError(t, err)
			require.ErrorIs(t, wait(t.Context()), panics.ErrPanic)
		}
		require.Contains(t, log.String(), "TestPanicOfACopy.func", "the log has the stack")
	})
}

func newHeld(t *testing.T) *Held {
	t.Helper()
	storage := must(OpenStorage(t.Context(), t.TempDir()))
	t.Cleanup(func() { require.NoError(t, storage.Close()) })
	return NewHeld(storage)
}

// putAt puts a picture; a higher n makes it younger. Many Linux kernels give files that are written
// within a few milliseconds the same time.
func (h *Held) putAt(t *testing.T, n int, tenant, id string, size int) {
	t.Helper()
	require.NoError(t, h.Put(t.Context(), tenant, id, strings.NewReader(strings.Repeat("x", size))))
	at := time.Now().Add(time.Duration(n-100) * time.Second)
	require.NoError(t, os.Chtimes(filepath.Join(h.storage.Dir(), filepath.FromSlash(h.key(tenant, id))), at, at))
}

// left counts a tenant's pictures.
func (h *Held) left(t *testing.T, tenant string) int {
	t.Helper()
	return len(must(h.list(context.Background(), h.folder(tenant))))
}

func TestHeldPicturesExpire(t *testing.T) {
	t.Parallel()
	h, ctx := newHeld(t), t.Context()
	require.NoError(t, h.Put(ctx, "default", "a/b", strings.NewReader("1234")))
	require.NoError(t, h.Expire(ctx, time.Now()))
	require.True(t, h.Has(ctx, "default", "a/b"))
	require.NoError(t, h.expire(ctx, time.Now().Add(time.Hour), maxAllHeldBytes))
	require.False(t, h.Has(ctx, "default", "a/b"))
	_, _, _, err := h.Open(ctx, "default", "a/b")
	require.ErrorIs(t, err, ErrGone)
}

func TestHeldPicturesOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	h, ctx := newHeld(t), t.Context()
	for n, id := range []string{"a", "b", "c"} {
		h.putAt(t, n, "default", id, 4)
	}
	require.NoError(t, h.shrink(ctx, h.folder("default"), 8, 9))
	require.False(t, h.Has(ctx, "default", "a"), "the oldest gives way")
	require.True(t, h.Has(ctx, "default", "c"))
}

// A tenant's pictures push out only its own, by number and by size. Beyond the bound for all
// tenants, the tenant with the most loses pictures.
func TestHeldPicturesOfOthersStay(t *testing.T) {
	t.Parallel()
	h, ctx := newHeld(t), t.Context()
	h.putAt(t, 0, "small", "1", 50)
	for n := range 5 {
		h.putAt(t, n, "many", fmt.Sprint(n), 10)
		h.putAt(t, n, "large", fmt.Sprint(n), 100)
	}
	require.NoError(t, h.shrink(ctx, h.folder("many"), 1000, 3))
	require.Equal(t, 3, h.left(t, "many"))
	require.NoError(t, h.expire(ctx, time.Now().Add(-heldFor), 300))
	require.Equal(t, 1, h.left(t, "small"))
	require.Equal(t, 3, h.left(t, "many"))
	require.Equal(t, 2, h.left(t, "large"))
	require.True(t, h.Has(ctx, "large", "4"), "the oldest go")
}

// What a server sends instead of a picture does not become the picture of a prompt that went well.
func TestOutputIsWhatItsNamePromises(t *testing.T) {
	const page = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"
	type row struct{ file, data, says string }
	beside.Cases(t, map[string]row{
		"a page for a picture":     {"a.png", page, "a web page instead of a file of type image"},
		"a page for a video":       {"a.mp4", page, "a web page instead of a file of type video"},
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
			Collect(t.Context(), tenant, []job.FileRef{ref}, nil, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
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

// A copy that fails for the same reason again and again says so once a minute.
func TestTroubleIsSaidOnce(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		s, i, log := newStore(t, redistest.Embedded(t)), newInstance(), &logtest.Log{}
		copies := NewCollector(s, i.fetch, CollectorOptions{Patience: Patience{Contact: 110 * time.Second}})
		defer copies.Close()
		ref := job.FileRef{Type: job.TypeOutput, Filename: "a.png"}
		i.put(ref, "<html>")
		_, wait, err := NewTransfer(s, copies, nil, slog.New(slog.NewTextHandler(log, nil))).
			Collect(t.Context(), tenant, []job.FileRef{ref}, nil, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
		require.NoError(t, err)
		require.ErrorIs(t, wait(t.Context()), ErrInstance)
		require.Equal(t, 2, strings.Count(log.String(), "will try again"), log.String())
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

// A file that arrives at a byte every five seconds is given up; one that comes over a slow line is
// not, however long it takes.
func TestFileThatDrips(t *testing.T) {
	type row struct {
		total, size int
		pause       time.Duration
		lost        bool
	}
	beside.Cases(t, map[string]row{
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
