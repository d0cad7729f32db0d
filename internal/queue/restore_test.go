package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// full returns a submission with everything that a job can have.
func full(id string) queue.Submission {
	return submission(id, func(s *queue.Submission) {
		s.Priority = 7
		s.Body.Secrets, s.Body.Inputs, s.Body.Targets = []byte(`{"api_key_comfy_org":"k"}`), []byte("pins"), []byte(`["9"]`)
	})
}

// losing is the queue of a hub whose Redis loses its last writes, and that of another hub on the
// same Redis.
type losing struct {
	*bench
	server *redistest.Server
	other  *bench
	s      queue.Submission
	j      job.Job // after its acceptance
	lost   []string
	// record is what Redis knew about the run.
	record map[string]string
}

// known returns what Redis knows about the job, without times that are never the same twice.
func (l *losing) known() map[string]string {
	fields := must(l.db.Client().HGetAll(l.t.Context(), l.db.Key("q", "job", l.j.Key)).Result())
	delete(fields, "lease")
	delete(fields, "started") // copies take it from another clock
	return fields
}

// accept accepts a job.
func (l *losing) accept() {
	accepted := must(l.Enqueue(l.t.Context(), l.s))
	l.j = accepted.Job
}

// rewound takes Redis back, and lets the hub put back what is lost.
func (l *losing) rewound(rewind func()) {
	rewind()
	require.NoError(l.t, l.Heal(l.t.Context()))
}

// run starts a run of the job.
func (l *losing) run() job.Run {
	run := l.claim(l.j, "gpu").Run
	_, err := l.Body(l.t.Context(), run.Key) // as each holder reads it
	require.NoError(l.t, err)
	require.NoError(l.t, l.Started(l.t.Context(), run))
	l.record = l.known()
	return run
}

// holds checks that the queue knows the run as it was, and lets it end.
func (l *losing) holds(run job.Run) {
	ctx := l.t.Context()
	got := l.get(run.Key)
	require.Equal(l.t, job.Running, got.State)
	run.LeaseUntil, got.Run.LeaseUntil = 0, 0
	require.Equal(l.t, run, got.Run)
	if l.record != nil { // of a run that began here
		known := l.known()
		for name, value := range l.record {
			require.Equal(l.t, value, known[name], name)
		}
	}
	require.Equal(l.t, []any{l.j.Rank, l.j.Number, l.j.Requester, 1}, []any{got.Rank, got.Number, got.Requester, got.Attempts})
	require.True(l.t, must(l.Taken(ctx))["gpu"])
	require.Equal(l.t, l.s.Body, must(l.Body(ctx, run.Key)))
	require.Empty(l.t, must(l.Peek(ctx, []string{"class"}, 9)), "nobody else gets it")
	require.Zero(l.t, must(l.RenewAndRecover(ctx, "hub/1", []job.Run{run})))
	require.NoError(l.t, l.Finish(ctx, run, done(`{"x":1}`)))
	l.ended(run.Key)
}

// ended checks that the job has ended, and that nothing else is left of it.
func (l *losing) ended(key string) {
	ctx := l.t.Context()
	j := l.get(key)
	require.Equal(l.t, job.Done, j.State)
	require.Zero(l.t, j.Kills)
	require.Equal(l.t, l.lost, j.Lost)
	require.JSONEq(l.t, `{"x":1}`, string(must(must(l.HistoryEntry(ctx, "tenant", l.s.ID)).JSON())))
	live, waiting, _, err := l.CountAll(ctx)
	require.NoError(l.t, err)
	require.Equal(l.t, []int{0, 0}, []int{live, waiting})
	require.Zero(l.t, l.share(""))
	require.Empty(l.t, must(l.Runs(ctx)))
	require.Empty(l.t, must(l.Taken(ctx)))
	require.ErrorIs(l.t, errOf(l.Body(ctx, key)), queue.ErrNotFound)
	require.Empty(l.t, must(l.Classes(ctx)))
}

// Redis is killed and comes back with older data. What this hub was told is restored from its own
// copies. Failovers of the simulated fleet lose whatever else there is.
func TestRedisLosesItsLastWrites(t *testing.T) {
	beside.Cases(t, map[string]func(l *losing){
		"an accept": func(l *losing) {
			rewind := l.server.Save()
			l.accept()
			l.rewound(rewind)
			got := l.get(l.j.Key)
			require.Positive(l.t, got.NotBefore, "another hub's run may be put back first")
			got.NotBefore = 0
			require.Equal(l.t, l.j, got)
			require.Equal(l.t, "1", l.enqueue("next").Number, "no number is given twice")
			require.Equal(l.t, l.s.Body, must(l.Body(l.t.Context(), l.j.Key)))
			n, waiting, _, err := l.CountAll(l.t.Context())
			require.NoError(l.t, err)
			require.Equal(l.t, []int{2, 2}, []int{n, waiting})
			require.Equal(l.t, l.j.Key, must(l.Find(l.t.Context(), "tenant", "id")).Key)
		},
		"a claim, found by the renewal": func(l *losing) {
			l.accept()
			rewind := l.server.Save()
			run := l.run()
			rewind()
			require.Zero(l.t, must(l.RenewAndRecover(l.t.Context(), "hub/1", []job.Run{run})))
			l.holds(run)
		},
		"a claim, found by the end": func(l *losing) {
			l.accept()
			rewind := l.server.Save()
			run := l.run()
			rewind()
			require.NoError(l.t, l.Release(l.t.Context(), run))
			require.NoError(l.t, l.Finish(l.t.Context(), run, done(`{"x":1}`)))
			l.ended(run.Key)
		},
		"an accept and a claim": func(l *losing) {
			rewind := l.server.Save()
			l.accept()
			run := l.run()
			l.rewound(rewind)
			l.holds(run)
		},
		"a run that was taken over": func(l *losing) {
			rewind := l.server.Save()
			accepted := must(l.other.Enqueue(l.t.Context(), l.s))
			l.j = accepted.Job
			orphan := must(l.Adopt(l.t.Context(), l.other.claim(l.j, "gpu").Run, "hub/1"))
			require.NoError(l.t, l.Started(l.t.Context(), orphan.Run))
			must(l.RenewAndRecover(l.t.Context(), "hub/1", []job.Run{orphan.Run}))
			l.rewound(rewind)
			l.holds(orphan.Run)
		},
		"an end": func(l *losing) {
			l.accept()
			run := l.run()
			rewind := l.server.Save()
			require.NoError(l.t, l.Finish(l.t.Context(), run, done(`{"x":1}`)))
			l.rewound(rewind)
			l.ended(run.Key)
			require.Len(l.t, must(l.Undelivered(l.t.Context(), "tenant", "client")), 1)
		},
		"an end that its client has confirmed": func(l *losing) {
			l.accept()
			run := l.run()
			rewind := l.server.Save()
			require.NoError(l.t, l.Finish(l.t.Context(), run, done(`{"x":1}`)))
			require.NoError(l.t, l.DeliveredEnds(l.t.Context(), queue.Confirmed{Tenant: l.j.Tenant, ID: l.j.ID}))
			l.rewound(rewind)
			l.ended(run.Key)
			require.Empty(l.t, must(l.Undelivered(l.t.Context(), "tenant", "client")))
		},
		"an end whose run another hub has taken over since": func(l *losing) {
			l.accept()
			run := l.run()
			rewind := l.server.Save()
			require.NoError(l.t, l.Finish(l.t.Context(), run, done(`{"x":1}`)))
			rewind()
			orphan := must(l.other.Adopt(l.t.Context(), run, "hub/2"))
			require.NoError(l.t, l.Heal(l.t.Context()))
			l.ended(run.Key)
			require.NoError(l.t, l.other.Finish(l.t.Context(), orphan.Run, done(`{"x":2}`)), "the end of an ended job")
			l.ended(run.Key)
		},
		"a job that its client has cancelled": func(l *losing) {
			rewind := l.server.Save()
			l.accept()
			must(l.Cancel(l.t.Context(), l.j.Key))
			l.rewound(rewind)
			require.ErrorIs(l.t, errOf(l.Get(l.t.Context(), l.j.Key)), queue.ErrNotFound)
		},
		"a history entry that was deleted": func(l *losing) {
			rewind := l.server.Save()
			l.accept()
			require.NoError(l.t, l.Finish(l.t.Context(), l.run(), done(`{"x":1}`)))
			require.NoError(l.t, l.DeleteHistory(l.t.Context(), "tenant", []string{"id"}))
			l.rewound(rewind)
			require.ErrorIs(l.t, errOf(l.Get(l.t.Context(), l.j.Key)), queue.ErrNotFound)
		},
	}, func(t *testing.T, test func(l *losing)) {
		server := redistest.Start(t)
		sealer := vault("s")
		hub := func() *bench { return on(t, redistest.Open(t, server.URL()), queue.Options{Sealer: sealer}) }
		l := &losing{bench: hub(), other: hub(), server: server, s: full("id")}
		require.NoError(t, l.Heal(t.Context()))
		test(l)
	})
}

// If Redis restarts without having lost anything, what others have done since is not undone.
func TestNothingIsPutBackThatWasNotLost(t *testing.T) {
	beside.Cases(t, map[string]func(l *losing){
		"deleted by another hub": func(l *losing) {
			require.NoError(l.t, l.Finish(l.t.Context(), l.run(), done(`{"x":1}`)))
			require.NoError(l.t, l.other.DeleteHistory(l.t.Context(), "tenant", []string{"id"}))
			require.NoError(l.t, l.HealNow(l.t.Context()))
			require.ErrorIs(l.t, errOf(l.Get(l.t.Context(), l.j.Key)), queue.ErrNotFound)
		},
		"cancelled by another hub": func(l *losing) {
			must(l.other.Cancel(l.t.Context(), l.j.Key))
			require.NoError(l.t, l.HealNow(l.t.Context()))
			require.Empty(l.t, must(l.Live(l.t.Context(), "")))
		},
		"cancelled by another hub and forgotten": func(l *losing) {
			must(l.other.Cancel(l.t.Context(), l.j.Key))
			require.Eventually(l.t, func() bool {
				must(l.other.Sweep(l.t.Context(), "hub/2", 1))
				_, err := l.Get(l.t.Context(), l.j.Key)
				return err != nil
			}, time.Minute, time.Millisecond)
			require.NoError(l.t, l.HealNow(l.t.Context()))
			require.Empty(l.t, must(l.Live(l.t.Context(), "")))
		},
		"taken over by another hub": func(l *losing) {
			run := l.run()
			orphan := must(l.other.Adopt(l.t.Context(), run, "hub/2"))
			require.NoError(l.t, l.HealNow(l.t.Context()))
			renewed := must(l.RenewAndRecover(l.t.Context(), "hub/1", []job.Run{run}))
			require.Equal(l.t, []job.Run{run}, renewed.Lost)
			require.ErrorIs(l.t, l.Finish(l.t.Context(), run, done(`{"x":1}`)), queue.ErrStale)
			renewed = must(l.other.RenewAndRecover(l.t.Context(), "hub/2", []job.Run{orphan.Run}))
			require.Zero(l.t, renewed)
		},
		"given back and claimed by another hub": func(l *losing) {
			run := l.run()
			orphan := must(l.other.Adopt(l.t.Context(), run, "hub/2"))
			must(l.other.Requeue(l.t.Context(), orphan.Run, queue.RequeueOptions{Reason: "lost"}))
			require.ErrorIs(l.t, l.Finish(l.t.Context(), run, done(`{"x":1}`)), queue.ErrStale)
			require.NoError(l.t, l.HealNow(l.t.Context()))
			require.Equal(l.t, job.Queued, l.get(run.Key).State)
		},
		"ended": func(l *losing) {
			require.NoError(l.t, l.Finish(l.t.Context(), l.run(), done(`{"x":1}`)))
			before := l.get(l.j.Key)
			require.NoError(l.t, l.HealNow(l.t.Context()))
			require.Equal(l.t, before, l.get(l.j.Key))
			l.ended(l.j.Key)
		},
	}, func(t *testing.T, test func(l *losing)) {
		redistest.Each(t, func(t *testing.T, db *redis.DB) {
			o := queue.Options{Sealer: vault("s"), Tombstone: time.Millisecond}
			l := &losing{bench: on(t, db, o), other: on(t, db, o), s: full("id")}
			l.KeepCopies()
			l.accept()
			test(l)
		})
	})
}

// The scripts that restore work the same on both kinds of Redis.
func TestAllIsPutBack(t *testing.T) {
	each(t, queue.Options{Sealer: vault("s")}, func(t *testing.T, b *bench) {
		b.KeepCopies()
		var runs []job.Run
		for _, id := range []string{"waits", "runs", "ended"} {
			l := &losing{bench: b, s: full(id)}
			l.accept()
			if id != "waits" {
				run := b.claim(l.j, "gpu of "+id).Run
				require.NoError(t, b.Started(t.Context(), run))
				runs = append(runs, run)
			}
		}
		require.NoError(t, b.Finish(t.Context(), runs[1], done(`{"x":1}`)))
		keys := must(b.db.Client().Keys(t.Context(), b.db.Key("q", "*")).Result())
		require.NoError(t, b.db.Client().Del(t.Context(), keys...).Err())
		require.NoError(t, b.HealNow(t.Context()))
		live := must(b.Live(t.Context(), ""))
		require.Equal(t, []string{"waits", "runs"}, ids(live))
		require.Equal(t, []job.State{job.Queued, job.Running}, []job.State{live[0].State, live[1].State})
		requireHistory(t, b, "tenant", `ended:{"x":1}`)
		require.ElementsMatch(t, keys, must(b.db.Client().Keys(t.Context(), b.db.Key("q", "*")).Result()))
	})
}

// The end of a job refers to files, so it is not put back before them.
func TestFilesArePutBackFirst(t *testing.T) {
	t.Parallel()
	var away error
	b := on(t, redistest.Embedded(t), queue.Options{HealFirst: func(context.Context) error { return away }})
	b.KeepCopies()
	require.NoError(t, b.Heal(t.Context()))
	run := b.claim(b.enqueue("a"), "gpu").Run
	require.NoError(t, b.Started(t.Context(), run))
	require.NoError(t, b.Finish(t.Context(), run, done(`{"x":1}`)))
	require.NoError(t, b.db.Client().Del(t.Context(), must(b.db.Client().Keys(t.Context(), b.db.Key("q", "*")).Result())...).Err())
	away = queue.ErrUnavailable
	require.ErrorIs(t, b.HealNow(t.Context()), queue.ErrUnavailable)
	requireHistory(t, b, "tenant")
	away = nil
	require.NoError(t, b.Heal(t.Context()))
	requireHistory(t, b, "tenant", `a:{"x":1}`)
}
