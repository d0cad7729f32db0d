package queue_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Accepted jobs and ended jobs survive a kill -9, which leaves the journal as it
// is on disk at that moment.
func TestEmbeddedHubIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := on(t, redistest.OpenDir(t, dir), queue.Options{})
	b.finished("ended")
	for i := range 20 {
		b.enqueue(fmt.Sprint("waiting", i))
	}
	must(b.Cancel(t.Context(), b.enqueue("cancelled").Key))
	running := b.claim(b.enqueue("running"), "gpu")
	b.enqueue("after") // its sync also covers the claim
	requireAfterCrash := func(dir string) {
		again := on(t, redistest.OpenDir(t, dir), queue.Options{})
		requireHistory(t, again, "tenant", "ended:ended")
		heads := must(again.Peek(t.Context(), []string{"class"}, 100))
		require.Len(t, heads, 21)
		runs := must(again.Runs(t.Context()))
		require.Equal(t, []job.Run{running.Run}, runs)
		require.NotEmpty(t, must(again.Body(t.Context(), heads[0].Key)).Prompt)
		require.NoError(t, again.Finish(t.Context(), must(again.Adopt(t.Context(), runs[0], "hub/2")).Run, done(`"adopted"`)))
		requireHistory(t, again, "tenant", "ended:ended", `running:"adopted"`)
		require.Equal(t, "24", again.enqueue("next").Number, "the counter goes on")
	}
	data := must(os.ReadFile(filepath.Join(dir, "queue.aof")))
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, "queue.aof"), data, 0o600))
	requireAfterCrash(copied)
	require.NoError(t, b.db.Close())
	requireAfterCrash(dir)
}

func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := on(t, redistest.Open(t, server.URL()), queue.Options{})
	ctx := t.Context()
	j, waiting := b.enqueue("a"), b.enqueue("waiting")
	run := b.claim(j, "gpu").Run
	events := b.Subscribe(ctx)
	require.Equal(t, queue.Resync, (<-events).Kind)
	server.Kill()

	s := submission("b")
	_, err := b.Enqueue(ctx, s)
	require.ErrorIs(t, err, redis.ErrUnavailable)
	_, err = b.Live(ctx, "")
	require.ErrorIs(t, err, redis.ErrUnavailable, "a listing is never shorter than it is")
	_, err = b.History(ctx, "tenant", queue.Page{})
	require.ErrorIs(t, err, redis.ErrUnavailable)
	_, err = b.Peek(ctx, []string{"class"}, 1)
	require.ErrorIs(t, err, redis.ErrUnavailable)
	_, err = b.Body(ctx, waiting.Key)
	require.ErrorIs(t, err, redis.ErrUnavailable)
	_, err = b.Body(ctx, j.Key)
	require.NoError(t, err, "the body of a run of its own needs no Redis")
	require.ErrorIs(t, b.Finish(ctx, run, done("{}")), redis.ErrUnavailable)

	server.Start()
	require.Eventually(t, func() bool { return b.Finish(ctx, run, done("{}")) == nil },
		time.Minute, 20*time.Millisecond, "a result that was held is written later")
	require.Equal(t, job.Done, b.get(j.Key).State)
	for e := range events {
		if e.Kind == queue.Resync {
			break
		}
	}
	must(b.Enqueue(ctx, s))
}
