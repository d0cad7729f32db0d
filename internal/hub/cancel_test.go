package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// The hub ends jobs for any dialect, so this test makes no request.
func TestCancelWithoutARequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		ctx, cancel := t.Context(), b.hub.Canceller()
		runs := b.submit(endless(1), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
		waits := b.submit(endless(2), "ann")
		find := func(id string) job.Job {
			j, err := b.hub.Jobs().FindLive(ctx, job.DefaultTenant, id)
			require.NoError(t, err)
			return j
		}
		running, waiting := find(runs), find(waits)

		gone, err := cancel.CancelWaiting(ctx, running, waiting)
		require.NoError(t, err)
		require.Equal(t, map[string]bool{waiting.Key: true}, gone, "what runs is left alone")
		require.Empty(t, find(waits).Key)

		hit, err := cancel.Cancel(ctx, job.DefaultTenant, runs)
		require.NoError(t, err)
		require.True(t, hit)
		require.Equal(t, "error", b.finished(runs).Status.Text)
		for _, id := range []string{runs, waits, "unknown"} { // there is nothing left to end
			hit, err = cancel.Cancel(ctx, job.DefaultTenant, id)
			require.NoError(t, err)
			require.False(t, hit, id)
		}
		require.NoError(t, cancel.Stop(ctx, waiting), "a job that is gone is none to stop")

		hidden := b.submit(endless(3), "bob")
		eventually(t, func() bool { return started(b) == 2 }, time.Minute, time.Millisecond)
		require.NoError(t, cancel.Withdraw(ctx, find(hidden)))
		require.Empty(t, find(hidden).Key)
		next := b.submit(picture(1), "bob") // the instance is free again
		require.Equal(t, "success", b.finished(next).Status.Text)
		_, ended := b.history(hidden)
		require.False(t, ended, "a job that is withdrawn leaves no trace")
	})
}

// A prompt that waits at an instance is shown as one that waits, and is removed like one.
func TestLookaheadIsPending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.settings.Lookahead = 1 })
		running := b.submit(endless(1), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
		stored := func(id string) job.Job {
			j, err := b.hub.queue.Find(t.Context(), job.DefaultTenant, id)
			require.NoError(t, err)
			return j
		}
		ahead := func(id string) {
			t.Helper()
			eventually(t, func() bool { return stored(id).Ahead }, time.Minute, time.Millisecond)
		}
		next := b.submit(endless(2), "ann")
		ahead(next)
		want := listings{[]string{running}, []string{next}}
		require.Equal(t, want, b.listed("ann"))
		_, body := b.get("/hub/jobs/" + next)
		require.Contains(t, string(body), `"status": "queued"`)
		require.Contains(t, string(body), `"position": 0`)

		// As in ComfyUI, an interrupt means what runs.
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, next))
		require.Equal(t, want, b.listed("ann"))
		b.posts("/queue", fmt.Sprintf(`{"delete": [%q], "client_id": "ann"}`, next))
		require.Equal(t, listings{[]string{running}, []string{}}, b.listed("ann"))
		_, ended := b.history(next)
		require.False(t, ended)

		last := b.submit(picture(3), "ann")
		ahead(last)
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, running))
		require.Equal(t, "success", b.finished(last).Status.Text)
		require.Equal(t, 2, started(b))
	})
}
