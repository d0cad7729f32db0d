package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// expire ends a run's lease, as if its holder had been silent too long.
func (b *bench) expire(run job.Run) {
	script := redis.NewScript("expire", redis.Write, `write('ZADD', key('q', 'leases'), '1', ARGV[1]) return {'ok'}`)
	must(b.db.Run(b.t.Context(), script, run.Key))
}

// TestTransitions tries every event in every state and compares the result with
// the table of package job.
func TestTransitions(t *testing.T) {
	events := map[job.Event]func(b *bench, j job.Job) error{
		job.Claim: func(b *bench, j job.Job) error {
			_, err := b.Claim(b.t.Context(), queue.ClaimRequest{Key: j.Key, Instance: "new", Hub: "hub/1", Upstream: "u"})
			return err
		},
		job.Start:    func(b *bench, j job.Job) error { return b.Started(b.t.Context(), j.Run) },
		job.Complete: func(b *bench, j job.Job) error { return b.Finish(b.t.Context(), j.Run, done("{}")) },
		job.Fail: func(b *bench, j job.Job) error {
			o := queue.Outcome{State: job.Failed, Entry: []byte("{}")}
			if j.State == job.Queued {
				return b.FailWaiting(b.t.Context(), j.Key, o)
			}
			return b.Finish(b.t.Context(), j.Run, o)
		},
		job.Requeue: func(b *bench, j job.Job) error {
			_, err := b.Requeue(b.t.Context(), j.Run, queue.RequeueOptions{Reason: "r"})
			return err
		},
		job.Cancel: func(b *bench, j job.Job) error {
			if j.State == job.Queued {
				_, err := b.Cancel(b.t.Context(), j.Key)
				return err
			}
			return b.Finish(b.t.Context(), j.Run, queue.Outcome{State: job.Cancelled, Entry: []byte("{}")})
		},
	}
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		n := 0
		// A queued job here has run before, so its old run is available for events that need one.
		make := func(state job.State) job.Job {
			n++
			j := b.claim(b.enqueue(fmt.Sprint(n)), fmt.Sprint("gpu", n))
			switch state {
			case job.Leased:
			case job.Queued:
				must(b.Requeue(t.Context(), j.Run, queue.RequeueOptions{Excused: true}))
			case job.Running:
				require.NoError(t, b.Started(t.Context(), j.Run))
			case job.Done, job.Failed, job.Cancelled:
				require.NoError(t, b.Finish(t.Context(), j.Run, queue.Outcome{State: state, Entry: []byte("{}")}))
			}
			return b.get(j.Key)
		}
		for _, state := range []job.State{job.Queued, job.Leased, job.Running, job.Done, job.Failed, job.Cancelled} {
			for event, do := range events {
				j := make(state)
				require.Equal(t, state, j.State)
				err := do(b, j)
				after, _ := b.Get(t.Context(), j.Key)
				want, refused := job.Next(state, event)
				if refused != nil && state.Ended() && (event == job.Complete || event == job.Fail || event == job.Cancel) {
					require.NoError(t, err, "an end sent again is no error: %s %s", state, event)
				} else {
					require.Equal(t, refused != nil, err != nil, "%s %s: %v", state, event, err)
				}
				require.Equal(t, want, after.State, "%s %s", state, event)
			}
		}
	})
}

func TestClaimAgain(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("a")
		r := queue.ClaimRequest{Key: j.Key, Instance: "gpu", Hub: "hub/1", Upstream: "u"}
		first := must(b.Claim(t.Context(), r))
		again, err := b.Claim(t.Context(), r)
		require.NoError(t, err, "the answer may have been lost")
		require.Equal(t, first, again)
		r.Upstream = "v"
		require.ErrorIs(t, errOf(b.Claim(t.Context(), r)), queue.ErrNotQueued)
		require.ErrorIs(t, errOf(b.Claim(t.Context(), queue.ClaimRequest{Key: "unknown", Instance: "gpu"})), queue.ErrNotFound)
	})
}

// A failover can lose the writes that freed an instance or assigned it.
func TestLostWritesHeal(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		mess := redis.NewScript("mess", redis.Write, `
			write('HSET', key('q', 'instances'), 'gpu', 'nobody', 'gpu2', ARGV[1])
			write('ZADD', key('q', 'leases'), '1', 'nobody')
			write('ZADD', key('q', 'leases'), '1', ARGV[1])
			return {'ok'}`)
		ended := b.claim(b.enqueue("ended"), "gpu0")
		require.NoError(t, b.Finish(ctx, ended.Run, done("{}")))
		must(b.db.Run(ctx, mess, ended.Key))
		b.claim(b.enqueue("a"), "gpu")
		b.claim(b.enqueue("b"), "gpu2")
		require.Empty(t, must(b.Sweep(ctx, "hub/1", 10)))
		require.Len(t, must(b.Runs(ctx)), 2)
	})
}

// A fence is higher than all earlier ones, even if the record of the latest ones is lost.
func TestFencesGrow(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.claim(b.enqueue("a"), "gpu")
		forgetful := redis.NewScript("forget", redis.Write, `write('HSET', key('q', 'job', ARGV[1]), 'fence', '0') return {'ok'}`)
		last := j.Fence
		for range 5 {
			orphan := must(b.Adopt(ctx, b.get(j.Key).Run, "hub/2"))
			require.Greater(t, orphan.Fence, last)
			last = orphan.Fence
		}
		require.Eventually(t, func() bool { // beyond the last fence, by the clock
			now, err := b.db.Now(ctx)
			return err == nil && now.UnixMilli() > last
		}, time.Minute, time.Millisecond)
		must(b.db.Run(ctx, forgetful, j.Key))
		require.Greater(t, must(b.Adopt(ctx, job.Run{Key: j.Key, Fence: 0}, "hub/3")).Fence, last)
	})
}

// A newer hub's fields survive everything that this hub does.
func TestUnknownFieldsSurvive(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		j := b.enqueue("a")
		newer := redis.NewScript("newer", redis.Write, `write('HSET', key('q', 'job', ARGV[1]), 'v', '2', 'future', 'x') return {'ok'}`)
		must(b.db.Run(ctx, newer, j.Key))
		run := b.claim(j, "gpu").Run
		require.NoError(t, b.Started(ctx, run))
		must(b.Requeue(ctx, run, queue.RequeueOptions{}))
		run = b.claim(j, "gpu").Run
		require.NoError(t, b.Finish(ctx, run, done("{}")))
		require.NoError(t, b.DeliveredEnds(ctx, queue.Confirmed{Tenant: j.Tenant, ID: j.ID}))
		require.Equal(t, []any{"2", "x"}, must(b.db.Client().HMGet(ctx, b.db.Key("q", "job", j.Key), "v", "future").Result()))
	})
}

func TestEvents(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		events := b.Subscribe(ctx)
		require.Equal(t, queue.Event{Kind: queue.Resync}, <-events)
		j := b.enqueue("a", func(s *queue.Submission) { s.Shape = "a shape" })
		expect := func(kind queue.Kind, state job.State) queue.Event {
			e := <-events
			require.Equal(t, kind, e.Kind)
			require.Equal(t, state, e.State)
			require.Equal(t, []string{j.Key, "a", "tenant", "caller", "client"}, []string{e.Key, e.ID, e.Tenant, e.Caller, e.Client})
			return e
		}
		expect(queue.Queued, job.Queued)
		run := b.claim(j, "gpu").Run
		e := expect(queue.Claimed, job.Leased)
		require.Equal(t, "gpu", e.Instance)
		require.Equal(t, "hub/1", e.Hub)
		require.Equal(t, j.Class, e.Class)
		require.Equal(t, "a shape", e.Shape)
		require.NoError(t, b.Started(ctx, run))
		expect(queue.Started, job.Running)
		must(b.Cancel(ctx, j.Key))
		expect(queue.CancelAsk, job.Running)
		require.NoError(t, b.Finish(ctx, run, queue.Outcome{State: job.Cancelled, Entry: []byte("{}")}))
		expect(queue.Freed, job.Running)
		expect(queue.Ended, job.Cancelled)
	})
}

// A bulk run is given up once, for a waiting interactive job that has been given none lately.
func TestPreempt(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		run := func(id, instance string, band job.Band) job.Run {
			return b.claim(b.enqueue(id, inBand(band)), instance).Run
		}
		bulk, other, normal := run("bulk", "1", job.Bulk), run("other", "2", job.Bulk), run("normal", "3", job.Normal)
		person := b.enqueue("person", inBand(job.Interactive))
		second := b.enqueue("second", inBand(job.Interactive))
		plain := b.enqueue("plain")
		started := b.claim(b.enqueue("started", inBand(job.Interactive)), "4").Run
		may := func(r job.Run, waiting string) bool { return must(b.Preempt(ctx, r, waiting, time.Hour)) }
		require.False(t, may(bulk, plain.Key), "only for interactive jobs")
		require.False(t, may(normal, person.Key), "only bulk runs")
		require.False(t, may(bulk, started.Key), "it does not wait")
		require.False(t, may(bulk, "nobody"))
		require.False(t, b.get(bulk.Key).Preempted)
		require.True(t, may(bulk, person.Key))
		require.True(t, b.get(bulk.Key).Preempted)
		require.False(t, may(other, person.Key), "one is enough")
		require.False(t, may(bulk, second.Key), "it makes way already")

		require.NoError(t, b.Started(t.Context(), bulk))
		requeued := must(b.Requeue(ctx, bulk, queue.RequeueOptions{Unused: true}))
		require.True(t, requeued.Preempted)
		require.ErrorIs(t, errOf(b.Preempt(ctx, bulk, second.Key, time.Hour)), queue.ErrStale)
		again := b.claim(requeued, "1")
		require.True(t, again.Preempted)
		require.False(t, may(again.Run, second.Key), "never twice")
		must(b.Cancel(ctx, other.Key))
		require.False(t, may(other, second.Key), "it is about to end")
	})
}

// A job that waits behind the run gets its instance; after a while another run may make way.
func TestPreemptForNext(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		bulk := b.claim(b.enqueue("bulk", inBand(job.Bulk)), "gpu").Run
		require.NoError(t, b.Started(t.Context(), bulk))
		next := must(b.ahead(b.enqueue("next", inBand(job.Interactive)).Key, "hub/1"))
		may := must(b.Preempt(t.Context(), bulk, next.Key, time.Nanosecond))
		require.True(t, may)
		other := b.claim(b.enqueue("other", inBand(job.Bulk)), "2").Run
		require.Eventually(t, func() bool {
			may, err := b.Preempt(t.Context(), other, next.Key, time.Hour)
			return err == nil && may
		}, time.Minute, time.Millisecond)
	})
}

// ahead asks for a run behind the one that the instance gpu has.
func (b *bench) ahead(key, hub string) (job.Job, error) {
	return b.Claim(b.t.Context(), queue.ClaimRequest{
		Key: key, Tenant: "tenant", Instance: "gpu", Hub: hub, Upstream: uuid.NewString(), Ahead: true,
	})
}

// A job may wait behind a run of the same hub that has begun. It gets the instance when it begins,
// whether the run before it has been released by then or not.
func TestClaimAhead(t *testing.T) {
	eachOf(t, queue.Options{}, map[string]bool{"released before": true, "released after": false}, func(t *testing.T, b *bench, early bool) {
		ctx := t.Context()
		first := b.claim(b.enqueue("a"), "gpu")
		second, third := b.enqueue("b"), b.enqueue("c")
		require.ErrorIs(t, errOf(b.ahead(second.Key, "hub/1")), queue.ErrTaken, "the run has not begun")
		require.NoError(t, b.Started(ctx, first.Run))
		require.ErrorIs(t, errOf(b.ahead(second.Key, "hub/2")), queue.ErrTaken, "the run is another hub's")
		second = must(b.ahead(second.Key, "hub/1"))
		require.True(t, second.Ahead)
		require.Equal(t, job.Leased, second.State)
		require.Equal(t, job.Queued, second.Seen().State)

		if early {
			require.NoError(t, b.Release(ctx, first.Run))
		}
		require.NoError(t, b.Started(ctx, second.Run))
		require.False(t, b.get(second.Key).Ahead)
		if !early {
			require.NoError(t, b.Release(ctx, first.Run))
		}
		require.ErrorIs(t, errOf(b.Claim(ctx, queue.ClaimRequest{Key: third.Key, Instance: "gpu", Hub: "hub/1", Upstream: "u"})), queue.ErrTaken)
		require.NoError(t, b.Release(ctx, second.Run))
		third = must(b.ahead(third.Key, "hub/1"))
		require.False(t, third.Ahead, "the instance is free")
	})
}

// A job's tenant pays for its run, but not for the one that it waited behind.
func TestWaitingAtAnInstanceIsFree(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		first := b.claim(b.enqueue("a"), "gpu")
		require.NoError(t, b.Started(ctx, first.Run))
		j := must(b.ahead(b.enqueue("b").Key, "hub/1"))
		record := b.db.Key("q", "job", j.Key)
		require.NoError(t, b.db.Client().HSet(ctx, record, "claimed", "1").Err())
		require.NoError(t, b.Started(ctx, j.Run))
		require.Greater(t, must(b.db.Client().HGet(ctx, record, "claimed").Int64()), int64(1))
	})
}
