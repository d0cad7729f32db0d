package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// progressing starts a job that reports its progress, and returns its run.
func (b *bench) progressing(id string, events ...string) job.Run {
	b.t.Helper()
	run := b.claim(b.enqueue(id, calling(events...)), "gpu").Run
	require.NoError(b.t, b.Started(b.t.Context(), run))
	return run
}

func (b *bench) progress(run job.Run, fraction float64) {
	b.t.Helper()
	require.NoError(b.t, b.Progress(b.t.Context(), run, fraction))
}

// paced lets the time pass after which progress is sent again.
func (b *bench) paced(run job.Run) {
	b.t.Helper()
	b.lua(`write('HSET', key('q', 'callback', k), 'progressed', '1')
write('ZADD', key('q', 'callbacks_due', 'tenant'), '1', k)
write('ZADD', key('q', 'callback_tenants'), '1', 'tenant')`, run.Key)
}

// Progress is told at once, then once in a while, and of what has come meanwhile only the
// newest.
func TestProgressIsThinned(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		run, began := b.progressing("a", "progress", "done"), time.Now()
		b.progress(run, 0.1)
		first := b.take()
		require.Len(t, first, 1)
		require.Equal(t, queue.EventProgress, first[0].Name)
		require.InDelta(t, 0.1, first[0].Progress, 0)
		b.progress(run, 0.2)
		require.NoError(t, b.Delivered(t.Context(), first[0]))
		b.progress(run, 0.3)
		b.progress(run, 0.4)
		require.Empty(t, b.take(), "too soon")
		waiting := must(b.WaitingCallbacks(t.Context(), "tenant", 9))
		require.Len(t, waiting, 1)
		require.Greater(t, waiting[0].Time, began.Add(3*time.Second).UnixMilli())
		b.paced(run)
		second := b.take()
		require.Len(t, second, 1)
		require.InDelta(t, 0.4, second[0].Progress, 0)
		require.NotEqual(t, first[0].ID, second[0].ID)
		require.NoError(t, b.Delivered(t.Context(), second[0]))
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		require.Equal(t, "done", b.told())
		b.nothingOpen()
	})
}

// An end takes the place of progress that waits, whatever it waits for.
func TestEndOvertakesProgress(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(b *bench, run job.Run){
		"not sent yet": func(b *bench, run job.Run) { b.progress(run, 0.1) },
		"too soon": func(b *bench, run job.Run) {
			b.progress(run, 0.1)
			require.Equal(b.t, "progress", b.told())
			b.progress(run, 0.2)
		},
		"after a failure": func(b *bench, run job.Run) {
			b.progress(run, 0.1)
			require.NoError(b.t, b.RetryCallback(b.t.Context(), b.take()[0], time.Hour, "HTTP 500"))
			b.progress(run, 0.2)
			require.Empty(b.t, b.take(), "the receiver is not asked more often for that")
		},
		"given up": func(b *bench, run job.Run) {
			b.progress(run, 0.1)
			require.NoError(b.t, b.BuryCallback(b.t.Context(), b.take()[0], "HTTP 410"))
			require.Empty(b.t, must(b.DeadCallbacks(b.t.Context(), "tenant", 9)), "nobody needs it later")
		},
	}, func(t *testing.T, b *bench, before func(b *bench, run job.Run)) {
		run := b.progressing("a", "progress", "done")
		before(b, run)
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		require.Equal(t, "done", b.told())
		require.Empty(t, b.told())
		b.nothingOpen()
	})
}

// An end waits for progress that is being sent, and nothing is sent again after it.
func TestEndDuringProgress(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]func(b *bench, taken queue.TakenCallback) error{
		"delivered": func(b *bench, e queue.TakenCallback) error { return b.Delivered(b.t.Context(), e) },
		"failed":    func(b *bench, e queue.TakenCallback) error { return b.RetryCallback(b.t.Context(), e, time.Hour, "no") },
		"put off":   func(b *bench, e queue.TakenCallback) error { return b.PutOffCallback(b.t.Context(), e, time.Hour) },
		"its hub dies": func(b *bench, e queue.TakenCallback) error {
			b.lua(`for _, k in ipairs(redis.call('ZRANGE', key('q', 'callbacks_due', 'tenant'), '0', '-1')) do
  if tonumber(redis.call('ZSCORE', key('q', 'callbacks_due', 'tenant'), k)) > now() + 15000 then error('its lease is long') end
  write('ZADD', key('q', 'callbacks_due', 'tenant'), '1', k)
end
write('ZADD', key('q', 'callback_tenants'), '1', 'tenant')`, "")
			return nil
		},
	}, func(t *testing.T, b *bench, settle func(b *bench, taken queue.TakenCallback) error) {
		run := b.progressing("a", "progress", "done")
		b.progress(run, 0.1)
		taken := b.take()
		require.Len(t, taken, 1)
		b.progress(run, 0.2)
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		require.Empty(t, b.take(), "in order")
		require.NoError(t, settle(b, taken[0]))
		require.Equal(t, "done", b.told())
		b.nothingOpen()
	})
}

// Progress of a job whose end is asked for, or that tells only of its end, is not told.
func TestProgressThatNobodyWants(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		run := b.progressing("a", "done")
		b.progress(run, 0.1)
		require.Empty(t, b.take())
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		require.Equal(t, "done", b.told())
		j := b.enqueue("b", calling("progress", "cancelled"))
		run = b.claim(j, "gpu").Run
		require.NoError(t, b.Started(t.Context(), run))
		must(b.Withdraw(t.Context(), j.Key))
		b.progress(run, 0.5)
		require.Empty(t, b.take())
		require.ErrorIs(t, b.Finish(t.Context(), run, queue.Outcome{State: job.Cancelled, Entry: []byte(`{}`)}), queue.ErrWithdrawn)
		require.Equal(t, "cancelled", b.told())
		b.nothingOpen()
	})
}
