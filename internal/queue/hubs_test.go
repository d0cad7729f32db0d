package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// hubs lets several hubs work through jobs at once, on fewer instances than they want. Now and then
// a run is lost, or a holder falls silent for good and another takes over its run.
func hubs(t *testing.T, db *redis.DB) {
	t.Helper()
	const n = 120
	b := on(t, db, queue.Options{Lease: time.Hour, MaxAttempts: 1000})
	keys := map[string]bool{}
	for i := range n {
		keys[b.enqueue(fmt.Sprint(i)).Key] = true
	}
	var busy [4]atomic.Int64 // runs on each instance
	var failed atomic.Bool
	var wg sync.WaitGroup
	for hub := range 4 {
		name := fmt.Sprint("hub/", hub)
		wg.Go(func() {
			for !failed.Load() {
				left, err := work(t, b, name, &busy)
				if err != nil {
					t.Error(err)
					failed.Store(true)
				}
				if left == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, r := range must(b.Ended(t.Context(), "tenant", queue.Page{})) {
		require.True(t, keys[r.Job.Key], "ended twice, or never accepted")
		delete(keys, r.Job.Key)
		require.Equal(t, job.Done, r.Job.State)
	}
	require.Empty(t, keys, "lost")
}

// work does one job, or other pending work, and returns how many jobs are left.
func work(t *testing.T, b *bench, hub string, busy *[4]atomic.Int64) (left int, err error) {
	t.Helper()
	ctx := t.Context()
	left, _, _, err = b.CountAll(ctx)
	if left == 0 || err != nil {
		return left, err
	}
	orphans, err := b.Sweep(ctx, hub, 5)
	if err != nil {
		return left, err
	}
	for _, o := range orphans {
		busy[instanceNumber(o.Instance)].Add(-1)
		if err := b.Finish(ctx, o.Run, done("{}")); err != nil {
			return left, err
		}
	}
	heads, err := b.Peek(ctx, []string{"class"}, 4)
	if err != nil || len(heads) == 0 {
		return left, err
	}
	instance := rand.IntN(len(busy))
	claimed, err := b.Claim(ctx, queue.ClaimRequest{
		Key: heads[rand.IntN(len(heads))].Key, Instance: fmt.Sprint("gpu", instance), Hub: hub, Upstream: uuid.NewString(),
	})
	if errors.Is(err, queue.ErrTaken) || errors.Is(err, queue.ErrNotQueued) {
		return left, nil
	}
	if err != nil {
		return left, err
	}
	if busy[instance].Add(1) != 1 {
		return left, fmt.Errorf("instance %d has two runs", instance)
	}
	run := claimed.Run
	if err := b.Started(ctx, run); err != nil {
		return left, err
	}
	switch rand.IntN(6) {
	case 0: // lost
		busy[instance].Add(-1)
		_, err = b.Requeue(ctx, run, queue.RequeueOptions{Reason: "lost"})
		return left, err
	case 1: // falls silent, and a sweep will find it
		b.expire(run)
		return left, nil
	}
	busy[instance].Add(-1)
	if err := b.Release(ctx, run); err != nil {
		return left, err
	}
	return left, b.Finish(ctx, run, done("{}"))
}

func instanceNumber(name string) int { return int(name[len(name)-1] - '0') }

func TestManyHubs(t *testing.T) {
	t.Parallel()
	redistest.Each(t, hubs)
}
