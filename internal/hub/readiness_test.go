package hub

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// However many ask whether the hub is ready, Redis is asked only once a second.
func TestReadyIsAskedByMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var answer error
		r := readiness{ask: func(ctx context.Context) error {
			asked.Add(1)
			select {
			case <-time.After(100 * time.Millisecond):
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		everybody := func() (failed int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if r.check(t.Context()) != nil {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		require.Zero(t, everybody())
		require.Zero(t, everybody())
		require.EqualValues(t, 1, asked.Load())
		time.Sleep(2 * readyFor)
		answer = errors.New("MISCONF")
		require.EqualValues(t, 50, everybody())
		require.ErrorContains(t, r.check(t.Context()), "MISCONF")
		require.EqualValues(t, 2, asked.Load())

		// A caller that asks on behalf of all and leaves does not spoil the answer of the others.
		time.Sleep(2 * readyFor)
		answer = nil
		leaving, leave := context.WithCancel(t.Context())
		leave()
		require.NoError(t, r.check(leaving))
		require.NoError(t, r.check(t.Context()))
		require.EqualValues(t, 3, asked.Load())
	})
}

// A hub whose Redis answers but stores nothing is not ready, and says why.
func TestNotReadyWhileRedisTakesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, 0, func(b *bench) { b.id.Redis = server.URL() })
	b.becomesReady()
	client := redistest.Open(t, server.URL()).Client()
	require.NoError(t, client.SlaveOf(t.Context(), "127.0.0.1", "1").Err())
	eventually(t, func() bool { return b.hub.Ready(t.Context()) != nil }, time.Minute, 5*time.Millisecond)
	require.ErrorIs(t, b.hub.Ready(t.Context()), redis.ErrUnavailable)
	require.ErrorContains(t, b.hub.Ready(t.Context()), "READONLY")
	finding := b.hub.Checkup().Findings(t.Context())
	require.Contains(t, finding, config.Finding{
		Level: config.LevelError, About: "redis", Says: b.hub.Ready(t.Context()).Error(), Do: "prompts are refused until Redis answers and stores what scripts write",
	})
	require.NoError(t, client.SlaveOf(t.Context(), "NO", "ONE").Err())
	b.becomesReady()
}

// A hub whose storage is unmounted says so everywhere, gives out no jobs, tells nobody
// that a file is gone, and goes on by itself when the storage is back.
func TestHubWithASickStorage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 1, func(b *bench) { b.log = log })
		require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text)
		require.NoError(t, b.hub.Ready(t.Context()))
		require.InDelta(t, 1, b.metric("comfyhub_storage_up"), 0)

		mount := filepath.Join(b.id.Data, "files")
		require.NoError(t, os.Rename(mount, mount+".away"))
		require.NoError(t, os.Mkdir(mount, 0o700))
		status, body := b.get("/view?filename=ComfyUI_00001_.png")
		// The output may still be on its instance, but the hub does not say that it is gone.
		require.NotEqual(t, http.StatusNotFound, status, string(body))
		eventually(t, func() bool { return b.hub.Ready(t.Context()) != nil }, time.Minute, 5*time.Millisecond)
		require.ErrorIs(t, b.hub.Ready(t.Context()), files.ErrStorage)
		require.ErrorContains(t, b.hub.Ready(t.Context()), "is it mounted?")
		require.InDelta(t, 0, b.metric("comfyhub_storage_up"), 0)
		eventually(t, func() bool { return strings.Contains(log.String(), "no jobs are given out until it can") }, time.Minute, 5*time.Millisecond)
		id := b.submit(picture(2), "ann")
		body = b.posts("/hub/explain", `{"prompt_id": "`+id+`"}`)
		require.Contains(t, string(body), "storage takes no files now")
		require.Equal(t, http.StatusServiceUnavailable, statusOf(b.upload("a.png", "", "bytes")))
		require.Equal(t, 1, started(b))

		require.NoError(t, os.RemoveAll(mount))
		require.NoError(t, os.Rename(mount+".away", mount))
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.NoError(t, b.hub.Ready(t.Context()))
		eventually(t, func() bool { return strings.Contains(log.String(), "the storage works again") }, time.Minute, 5*time.Millisecond)
		b.gets("/view?filename=ComfyUI_00001_.png")
	})
}

// A hub that is closed is garbage: a configuration that is loaded again and again makes many.
func TestClosedHubIsForgotten(t *testing.T) {
	var closed weak.Pointer[Hub]
	t.Run("one", func(t *testing.T) {
		b := newBench(t, 1)
		b.finished(b.submit(picture(1), "ann"))
		b.get("/object_info")
		b.get("/")
		closed = weak.Make(b.hub)
	})
	eventually(t, func() bool {
		runtime.GC()
		return closed.Value() == nil
	}, time.Minute, 100*time.Millisecond)
}
