package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// What others have done since is not undone when Redis restarts and has lost nothing.
func TestNothingIsPutBackThatWasNotLost(t *testing.T) {
	sideBySide(t, map[string]func(l *losing){
		"deleted by another hub": func(l *losing) {
			require.NoError(l.t, l.Finish(l.t.Context(), l.run(), done(`{"x":1}`)))
			require.NoError(l.t, l.other.DeleteHistory(l.t.Context(), "tenant", []string{"id"}))
			require.NoError(l.t, l.HealNow(l.t.Context()))
			_, err := l.Get(l.t.Context(), l.j.Key)
			require.ErrorIs(l.t, err, queue.ErrNotFound)
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
			o := queue.Options{Sealer: vault(t, "s"), Tombstone: time.Millisecond}
			l := &losing{bench: on(t, db, o), other: on(t, db, o), s: full("id")}
			l.KeepCopies()
			l.accept()
			test(l)
		})
	})
}

// The scripts that put back do the same on both kinds of Redis.
func TestAllIsPutBack(t *testing.T) {
	each(t, queue.Options{Sealer: vault(t, "s")}, func(t *testing.T, b *bench) {
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

// The end of a job shows names of files: it is not put back before them.
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

// After a restart of Redis nobody gets a job for a moment: it may run, and its hub
// has yet to say so.
func TestNoClaimRightAfterARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := on(t, redistest.Open(t, server.URL()), queue.Options{})
	require.NoError(t, b.Heal(t.Context()))
	j := b.enqueue("a")
	server.Stop()
	_, err := b.Get(t.Context(), j.Key)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	server.Start()
	request := queue.ClaimRequest{Key: j.Key, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid"}
	_, err = b.Claim(t.Context(), request)
	require.ErrorIs(t, err, queue.ErrUnavailable)
	require.Eventually(t, func() bool {
		_, err := b.Claim(t.Context(), request)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}
