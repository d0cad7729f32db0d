package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// calling gives a submission a callback for some events.
func calling(events ...string) func(*queue.Submission) {
	return func(s *queue.Submission) {
		s.Callback = &queue.Callback{URL: "https://example.com/" + s.ID, Events: events}
	}
}

var allEvents = []string{queue.EventQueued, queue.EventStarted, queue.EventProgress, queue.EventDone, queue.EventFailed, queue.EventCancelled}

// take takes all events that are due now.
func (b *bench) take(skip ...string) []queue.TakenCallback {
	return must(b.TakeCallbacks(b.t.Context(), 9, skip))
}

// takeOne takes the one event that is due now.
func (b *bench) takeOne() queue.TakenCallback {
	taken := b.take()
	require.Len(b.t, taken, 1)
	return taken[0]
}

// told takes the one event that is due, delivers it and returns its name; "" for none.
func (b *bench) told() string {
	taken := b.take()
	if len(taken) == 0 {
		return ""
	}
	require.Len(b.t, taken, 1)
	require.NoError(b.t, b.Delivered(b.t.Context(), taken[0]))
	return taken[0].Name
}

// nothingOpen checks that no callback is left.
func (b *bench) nothingOpen() {
	require.Empty(b.t, must(b.db.Client().Keys(b.t.Context(), b.db.Key("q", "callback*")).Result()))
}

// run claims and starts a job, and ends it.
func (b *bench) runs(j job.Job, state job.State, reason string) {
	run := b.claim(j, "gpu").Run
	require.NoError(b.t, b.Started(b.t.Context(), run))
	require.NoError(b.t, b.Finish(b.t.Context(), run, queue.Outcome{State: state, Entry: []byte(`{}`), Reason: reason}))
}

func TestCallbacksInOrder(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("a", calling(allEvents...))
		b.runs(j, job.Failed, "a reason")
		var ids []string
		for _, want := range []string{"queued", "started", "failed"} {
			e, again := b.takeOne(), []queue.TakenCallback{}
			require.Equal(t, []string{want, "tenant", "a", "https://example.com/a"}, []string{e.Name, e.Tenant, e.Prompt, e.URL})
			require.Empty(t, b.take(), "one hub sends it, and the next one waits for it")
			require.NoError(t, b.RetryCallback(t.Context(), e, 1, "HTTP 500"))
			waiting := must(b.WaitingCallbacks(t.Context(), "tenant", 9))
			require.Len(t, waiting, 1)
			require.Equal(t, "HTTP 500", waiting[0].Error)
			require.ErrorIs(t, b.Delivered(t.Context(), e), queue.ErrStale)
			require.Eventually(t, func() bool { again = b.take(); return len(again) == 1 }, time.Minute, time.Millisecond)
			require.Equal(t, e.ID, again[0].ID)
			require.Equal(t, 1, again[0].Attempts)
			require.NoError(t, b.Delivered(t.Context(), again[0]))
			if want == "failed" {
				require.Equal(t, "a reason", e.Reason)
				require.Positive(t, e.FinishedAt)
			}
			ids = append(ids, e.ID)
		}
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), 3)
		require.Empty(t, b.told())
		b.nothingOpen()
	})
}

// Events that nobody wants are not reported, and leave nothing behind.
func TestUnwantedEvents(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.runs(b.enqueue("a", calling("failed")), job.Done, "")
		require.Empty(t, b.told())
		b.nothingOpen()
		b.runs(b.enqueue("b"), job.Done, "")
		b.nothingOpen()
	})
}

func TestDeadCallbacks(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.runs(b.enqueue("a", calling("started", "done")), job.Done, "")
		first := b.take()[0]
		require.NoError(t, b.BuryCallback(ctx, first, "HTTP 410"))
		require.Equal(t, "done", b.told(), "the next event goes on")
		for _, tenant := range []string{"tenant", ""} {
			dead := must(b.DeadCallbacks(ctx, tenant, 9))
			require.Len(t, dead, 1)
			require.Equal(t, []string{first.ID, "started", "HTTP 410"}, []string{dead[0].ID, dead[0].Name, dead[0].Error})
		}
		require.Empty(t, must(b.DeadCallbacks(ctx, "eve", 9)))
		require.ErrorIs(t, b.ReplayCallback(ctx, "eve", first.ID), queue.ErrNotFound, "others' do not exist")
		require.NoError(t, b.ReplayCallback(ctx, "tenant", first.ID))
		require.ErrorIs(t, b.ReplayCallback(ctx, "tenant", first.ID), queue.ErrNotFound)
		again := b.take()
		require.Len(t, again, 1)
		require.Equal(t, first.CallbackEvent, again[0].CallbackEvent)
		require.Less(t, again[0].Age.Hours(), 1.0, "its day begins again")
		require.NoError(t, b.Delivered(ctx, again[0]))
		b.nothingOpen()
	})
}

// Tenants take turns: many callbacks of one tenant do not hold up a single one of another.
func TestCallbacksTakeTurns(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for n := range 20 {
			b.enqueue(fmt.Sprint("a", n), from("a", "a"), calling("queued"))
		}
		b.enqueue("b", from("b", "b"), calling("queued"))
		taken := b.take()
		require.Len(t, taken, 2, "one of each")
		require.Empty(t, b.take("a"), "a has as many as it may")
		require.Len(t, b.take(), 1)
		waiting := must(b.WaitingCallbacks(t.Context(), "", 99))
		require.Len(t, waiting, 21)
		waiting = must(b.WaitingCallbacks(t.Context(), "b", 99))
		require.Len(t, waiting, 1)
	})
}

// A job that its client is told was never accepted has no callback; for others, callbacks start
// once they are accepted.
func TestCallbackAtDoor(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("refused", atDoor, calling(allEvents...))
		require.NoError(t, b.Reject(t.Context(), b.claim(j, "gpu").Run, []byte(`{"error": "no"}`)))
		require.Empty(t, b.told())
		b.nothingOpen()
		j = b.enqueue("admitted", atDoor, calling(allEvents...))
		require.Empty(t, b.told())
		_, refused, err := b.Admit(t.Context(), j.Key)
		require.NoError(t, err)
		require.False(t, refused)
		require.Equal(t, "queued", b.told())
		b.runs(b.enqueue("started", atDoor, calling(allEvents...)), job.Done, "")
		require.Equal(t, []string{"queued", "started", "done"}, []string{b.told(), b.told(), b.told()})
	})
}

// One tenant's callbacks are bounded, however many jobs it posts.
func TestTooManyCallbacks(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.lua(`for n = 1, 10000 do write('SADD', key('q', 'callbacks_open', 'tenant'), 'x' .. int(n)) end`, "")
		require.ErrorIs(t, errOf(b.Enqueue(t.Context(), submission("a", calling("done")))), queue.ErrTenantCallbacksFull)
		b.enqueue("a")
		b.enqueue("b", from("b", "b"), calling("done"))
		b.lua(`for n = 1, 50000 do write('ZADD', key('q', 'callbacks_open'), '9e15', 'x' .. int(n)) end`, "")
		require.ErrorIs(t, errOf(b.Enqueue(t.Context(), submission("c", from("b", "b"), calling("done")))), queue.ErrCallbacksFull)
	})
}

// A hub of a version without callbacks ends a job: its callback is called all the same.
func TestEndOfAnOldHubCallsBack(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("a", calling("done"))
		require.Empty(t, b.told())
		b.lua(`write('HSET', key('q', 'job', k), 'state', 'done', 'finished', int(now()))
write('ZADD', key('q', 'callbacks_open'), '1', k)`, j.Key)
		require.Equal(t, "done", b.told())
		b.nothingOpen()
	})
}

// An end that Redis loses and gets back is reported under the same id.
func TestRestoredEndCallsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := on(t, redistest.Open(t, server.URL()), queue.Options{})
	require.NoError(t, b.Heal(t.Context()))
	rewind := server.Save()
	j := b.enqueue("a", calling("done"))
	run := b.claim(j, "gpu").Run
	must(b.Body(t.Context(), run.Key))
	require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
	first := b.take()[0]
	require.NoError(t, b.Delivered(t.Context(), first))
	rewind()
	require.NoError(t, b.Heal(t.Context()))
	again := b.takeOne()
	require.Equal(t, first.ID, again.ID)
	require.NoError(t, b.Delivered(t.Context(), again))
	b.nothingOpen()
}

// progressing starts a job that reports its progress, and returns its run.
func (b *bench) progressing(id string, events ...string) job.Run {
	run := b.claim(b.enqueue(id, calling(events...)), "gpu").Run
	require.NoError(b.t, b.Started(b.t.Context(), run))
	return run
}

func (b *bench) progress(run job.Run, fraction float64) {
	require.NoError(b.t, b.Progress(b.t.Context(), run, fraction))
}

// paced lets the time pass after which progress is sent again.
func (b *bench) paced(run job.Run) {
	b.lua(`write('HSET', key('q', 'callback', k), 'progressed', '1')
write('ZADD', key('q', 'callbacks_due', 'tenant'), '1', k)
write('ZADD', key('q', 'callback_tenants'), '1', 'tenant')`, run.Key)
}

// Progress is reported at once, then only once in a while, and then only the newest.
func TestProgressIsThinned(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		run, began := b.progressing("a", "progress", "done"), time.Now()
		b.progress(run, 0.1)
		first := b.takeOne()
		require.Equal(t, queue.EventProgress, first.Name)
		require.InDelta(t, 0.1, first.Progress, 0)
		b.progress(run, 0.2)
		require.NoError(t, b.Delivered(t.Context(), first))
		b.progress(run, 0.3)
		b.progress(run, 0.4)
		require.Empty(t, b.take(), "too soon")
		waiting := must(b.WaitingCallbacks(t.Context(), "tenant", 9))
		require.Len(t, waiting, 1)
		require.Greater(t, waiting[0].Time, began.Add(3*time.Second).UnixMilli())
		b.paced(run)
		second := b.takeOne()
		require.InDelta(t, 0.4, second.Progress, 0)
		require.NotEqual(t, first.ID, second.ID)
		require.NoError(t, b.Delivered(t.Context(), second))
		require.NoError(t, b.Finish(t.Context(), run, done(`{}`)))
		require.Equal(t, "done", b.told())
		b.nothingOpen()
	})
}

// An end replaces progress that is waiting, whatever that is waiting for.
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

// Progress is not reported for a job that is asked to end, or whose callback only wants its end.
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
		must(b.Withdraw(t.Context(), j.Key, false))
		b.progress(run, 0.5)
		require.Empty(t, b.take())
		require.ErrorIs(t, b.Finish(t.Context(), run, queue.Outcome{State: job.Cancelled, Entry: []byte(`{}`)}), queue.ErrWithdrawn)
		require.Equal(t, "cancelled", b.told())
		b.nothingOpen()
	})
}
