package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// An instance is free again, however it is given back.
func TestInstanceIsFreed(t *testing.T) {
	t.Parallel()
	ways := map[string]func(b *bench, j job.Job) error{
		"release": func(b *bench, j job.Job) error { return b.Release(b.t.Context(), j.Run) },
		"finish":  func(b *bench, j job.Job) error { return b.Finish(b.t.Context(), j.Run, done("{}")) },
		"requeue": func(b *bench, j job.Job) error {
			_, err := b.Requeue(b.t.Context(), j.Run, queue.RequeueOptions{})
			return err
		},
		"exhausted": func(b *bench, j job.Job) error {
			tired := on(b.t, b.db, queue.Options{MaxAttempts: 1})
			_, err := tired.Requeue(b.t.Context(), j.Run, queue.RequeueOptions{})
			require.ErrorIs(b.t, err, queue.ErrExhausted)
			return nil
		},
		"release twice": func(b *bench, j job.Job) error {
			require.NoError(b.t, b.Release(b.t.Context(), j.Run))
			b.claim(b.enqueue("between"), "gpu")
			require.NoError(b.t, b.Release(b.t.Context(), j.Run), "said again")
			_, err := b.Claim(b.t.Context(), queue.ClaimRequest{Key: b.enqueue("no").Key, Instance: "gpu", Upstream: "u"})
			require.ErrorIs(b.t, err, queue.ErrTaken, "the next run keeps it")
			require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done("{}")))
			_, err = b.Claim(b.t.Context(), queue.ClaimRequest{Key: b.enqueue("no2").Key, Instance: "gpu", Upstream: "u"})
			require.ErrorIs(b.t, err, queue.ErrTaken, "also after the end")
			return nil
		},
	}
	for name, give := range ways {
		t.Run(name, func(t *testing.T) {
			each(t, queue.Options{}, func(t *testing.T, b *bench) {
				taken := func() map[string]bool {
					return must(b.Taken(t.Context()))
				}
				require.Empty(t, taken())
				j := b.claim(b.enqueue("a"), "gpu")
				require.Equal(t, map[string]bool{"gpu": true}, taken())
				next := b.enqueue("b")
				_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: next.Key, Instance: "gpu", Upstream: "u"})
				require.ErrorIs(t, err, queue.ErrTaken)
				require.NoError(t, give(b, j))
				if name != "release twice" {
					require.Empty(t, taken())
				}
				if name != "release twice" {
					b.claim(next, "gpu")
				}
			})
		})
	}
}

func TestRequeue(t *testing.T) {
	each(t, queue.Options{MaxAttempts: 2}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		b.enqueue("b")
		waiting := func() []string {
			heads := must(b.Peek(ctx, []string{"class"}, 10))
			return ids(heads)
		}
		run := b.claim(a, "gpu").Run
		require.Equal(t, []string{"b"}, waiting())
		back := must(b.Requeue(ctx, run, queue.RequeueOptions{Reason: "taken back", Excused: true}))
		require.Equal(t, []string{"a", "b"}, waiting(), "the old place")
		require.Equal(t, a.Rank, back.Rank)
		require.Zero(t, back.Attempts)
		require.Equal(t, job.Queued, back.State)
		require.Equal(t, "taken back", back.Reason)

		run = b.claim(a, "gpu").Run
		back = must(b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died: 1\nline two"}))
		require.Equal(t, 1, back.Attempts)
		run = b.claim(a, "gpu").Run
		last, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died again"})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, []string{"taken back", "died: 1\nline two", "died again"}, last.Lost)
		require.Equal(t, job.Leased, last.State, "the caller still holds it")
		again, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died again"})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, last, again, "said again it changes nothing")

		// The holder dies. The next one learns that only the end is missing.
		b.expire(run)
		orphans := must(b.Sweep(ctx, "hub/2", 10))
		require.Len(t, orphans, 1)
		require.True(t, orphans[0].Exhausted)
		require.NoError(t, b.Finish(ctx, orphans[0].Run, queue.Outcome{State: job.Failed, Entry: []byte("{}"), Reason: "three times"}))
		require.Equal(t, "three times", b.get(a.Key).Reason)
	})
}

// Two instances that die with a job are enough, however many attempts it has left.
func TestRequeueAfterKills(t *testing.T) {
	each(t, queue.Options{MaxAttempts: 9}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		back := must(b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "lost"}))
		require.Zero(t, back.Kills)
		back = must(b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "died", Killed: true}))
		require.Equal(t, []int{2, 1}, []int{back.Attempts, back.Kills})
		back = must(b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "taken back", Excused: true}))
		require.Equal(t, []int{2, 1}, []int{back.Attempts, back.Kills})
		back = must(b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Reason: "died again", Killed: true, Failed: true}))
		require.Equal(t, []int{3, 1}, []int{back.Attempts, back.Kills}, "it is the same one")
		require.Equal(t, []string{"gpu"}, back.FailedAt)
		run := b.claim(a, "gpu2").Run
		last, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died, too", Killed: true, Failed: true})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, 2, last.Kills)
		require.Equal(t, []string{"gpu", "gpu2"}, last.FailedAt)
		require.Equal(t, []string{"lost", "died", "taken back", "died again", "died, too"}, last.Lost)
		again, err := b.Requeue(ctx, run, queue.RequeueOptions{Reason: "died, too", Killed: true})
		require.ErrorIs(t, err, queue.ErrExhausted)
		require.Equal(t, last, again, "said again it changes nothing")
	})
}

// Runs that do not count are bounded too, more tightly if they cost GPU time. A job that no attempt
// can help gets none.
func TestExcusesAreBounded(t *testing.T) {
	type row struct {
		before  map[string]any // what the record already says
		started bool
		o       queue.RequeueOptions
		spent   bool
	}
	eachOf(t, queue.Options{}, map[string]row{
		"excused":                       {o: queue.RequeueOptions{Excused: true}},
		"excused too often":             {before: map[string]any{"excuses": queue.MaxExcuses - 1}, o: queue.RequeueOptions{Excused: true}, spent: true},
		"excused, having run":           {before: map[string]any{"reruns": queue.MaxReruns - 2}, started: true, o: queue.RequeueOptions{Excused: true}},
		"excused, having run too often": {before: map[string]any{"reruns": queue.MaxReruns - 1}, started: true, o: queue.RequeueOptions{Excused: true}, spent: true},
		"excused, not having run":       {before: map[string]any{"reruns": queue.MaxReruns - 1}, o: queue.RequeueOptions{Excused: true}},
		"lost, often excused before":    {before: map[string]any{"excuses": queue.MaxExcuses - 1}, o: queue.RequeueOptions{}},
		"hopeless":                      {o: queue.RequeueOptions{Hopeless: true}, spent: true},
	}, func(t *testing.T, b *bench, tt row) {
		j := b.enqueue("a")
		if tt.before != nil {
			require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", j.Key), tt.before).Err())
		}
		run := b.claim(j, "gpu").Run
		if tt.started {
			require.NoError(t, b.Started(t.Context(), run))
		}
		o := tt.o
		o.Reason = "why"
		back, err := b.Requeue(t.Context(), run, o)
		require.Equal(t, []string{"why"}, back.Lost)
		if !tt.spent {
			require.NoError(t, err)
			require.Equal(t, job.Queued, back.State)
			return
		}
		require.ErrorIs(t, err, queue.ErrExhausted)
		b.expire(run) // its holder dies before ending it
		orphans := must(b.Sweep(t.Context(), "hub/2", 10))
		require.Len(t, orphans, 1)
		require.True(t, orphans[0].Exhausted)
	})
}

func TestLastReasonsAreKept(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		j := b.enqueue("a")
		requeue := func(reason string) []string {
			back := must(b.Requeue(t.Context(), b.claim(j, "gpu").Run, queue.RequeueOptions{Reason: reason, Excused: true}))
			return back.Lost
		}
		for n := range 12 {
			requeue(fmt.Sprintf("%d: %s\n", n, strings.Repeat("ä:", n)))
		}
		last := requeue("")
		require.Len(t, last, 8)
		require.Equal(t, "5: "+strings.Repeat("ä:", 5)+"\n", last[0])
		require.Equal(t, []string{"11: " + strings.Repeat("ä:", 11) + "\n", ""}, last[6:])
	})
}

// A job that has to wait cannot be seen by hubs that look for work, nor claimed, until its time has
// come. It keeps its place.
func TestPause(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		a := b.enqueue("a")
		b.enqueue("b")
		look := func() queue.Window {
			return must(b.Window(ctx, queue.Wanted{}, 0, 2))
		}
		back := must(b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{Excused: true, Pause: time.Hour}))
		require.Equal(t, 1, back.Excuses)
		require.Equal(t, []string{"b"}, ids(look().Jobs))
		require.Greater(t, look().Next, 50*time.Minute)
		require.Equal(t, []string{"a", "b"}, ids(must(b.Peek(ctx, []string{"class"}, 2))))
		_, err := b.Claim(ctx, queue.ClaimRequest{Key: a.Key, Instance: "gpu", Hub: "hub/1", Upstream: "u"})
		require.ErrorIs(t, err, queue.ErrNotQueued)
		require.NoError(t, b.db.Client().HSet(ctx, b.db.Key("q", "job", a.Key), "not_before", must(b.db.Now(ctx)).UnixMilli()).Err())
		require.Equal(t, []string{"a", "b"}, ids(look().Jobs))
		require.Zero(t, look().Next)
		back = must(b.Requeue(ctx, b.claim(a, "gpu").Run, queue.RequeueOptions{}))
		require.Zero(t, back.NotBefore)
	})
}

// A record that cannot be read does not hide the jobs behind it.
func TestWindowBehindADamagedRecord(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		a := b.enqueue("a")
		b.enqueue("b")
		require.NoError(t, b.db.Client().HSet(t.Context(), b.db.Key("q", "job", a.Key), "attempts", "many").Err())
		w := must(b.Window(t.Context(), queue.Wanted{}, 0, 1))
		require.True(t, w.More)
		require.Zero(t, w.Next)
		require.Empty(t, w.Jobs)
		w = must(b.Window(t.Context(), queue.Wanted{}, 1, 1))
		require.Equal(t, []string{"b"}, ids(w.Jobs))
	})
}
