package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// inBand puts a submission into a band.
func inBand(band job.Band) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Band = band }
}

// A higher band goes first, whoever is in it and whatever its priority; after nine of its
// jobs, one of a lower band goes.
func TestBands(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for n := range 12 {
			b.enqueue(fmt.Sprint("bulk", n), from("a", "a"), inBand(job.Bulk), func(s *queue.Submission) { s.Priority = 100 })
		}
		for n := range 12 {
			b.enqueue(fmt.Sprint("normal", n), from("a", "a"))
		}
		for n := range 12 {
			b.enqueue(fmt.Sprint("person", n), from([]string{"b", "c"}[n%2], "b"), inBand(job.Interactive), func(s *queue.Submission) { s.Priority = -100 })
		}
		w := must(b.Window(t.Context(), queue.Wanted{}, 0, 100))
		var foreseen, order []string
		for _, j := range w.Jobs {
			foreseen = append(foreseen, j.ID)
		}
		last := map[job.Band]int{}
		for n := range 36 {
			j := b.next(time.Second)
			require.True(t, len(j.Rank) > 0 && j.Rank[:1] == j.Band().Mark() || j.Band() == job.Normal)
			order = append(order, j.ID)
			require.LessOrEqual(t, n-last[j.Band()], 11, "%s waits for ever: %v", j.Band(), order)
			last[j.Band()] = n
		}
		require.Equal(t, foreseen, order)
		persons := 0
		for _, id := range order[:10] {
			if id[:1] == "p" {
				persons++
			}
		}
		require.Equal(t, 9, persons, order)
		counts := map[string]int{}
		for n := range 6 { // tenants of one band take turns
			counts[order[n][:1]]++
		}
		require.Equal(t, map[string]int{"p": 6}, counts)
	})
}

// What nobody has waiting is owed nothing when it comes.
func TestBandThatComesWaits(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		for n := range 30 {
			b.enqueue(fmt.Sprint("n", n), from("a", "a"))
		}
		for range 20 {
			b.next(time.Second)
		}
		b.enqueue("bulk", from("b", "b"), inBand(job.Bulk))
		for n := range 9 {
			require.Equal(t, job.Normal, b.next(time.Second).Band(), n)
		}
		require.Equal(t, "bulk", b.next(time.Second).ID)
	})
}

// A job keeps its band when it is steered, given back, and paused.
func TestBandIsKept(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		first := b.enqueue("first", inBand(job.Bulk))
		number := 3.0
		second := b.enqueue("second", inBand(job.Bulk), func(s *queue.Submission) { s.Number = &number })
		require.Equal(t, job.Bulk, second.Band())
		front, low := queue.Front, -3
		for _, s := range []queue.Steering{{Position: front}, {Priority: &low}, {Position: queue.End}} {
			j := must(b.Steer(ctx, second.Key, s))
			require.Equal(t, job.Bulk, j.Band())
			require.True(t, j.InFront(), "there is no other one of its priority")
		}
		yes, no := true, false
		for _, paused := range []*bool{&yes, &no} {
			require.Equal(t, job.Bulk, must(b.Steer(ctx, first.Key, queue.Steering{Paused: paused})).Band())
		}
		run := b.claim(first, "gpu").Run
		must(b.Requeue(ctx, run, queue.RequeueOptions{}))
		require.Equal(t, job.Bulk, b.get(first.Key).Band())
		normal := b.enqueue("normal")
		require.Equal(t, 1, must(b.Position(ctx, first.Key)))
		require.Equal(t, []string{normal.Key, first.Key, second.Key}, keysOf(must(b.Live(ctx, ""))))
	})
}

// With the order fifo a job has no band.
func TestNoBandsWithFIFO(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.SetLimits(queue.Limits{FIFO: true})
		first := b.enqueue("bulk", inBand(job.Bulk))
		b.enqueue("person", inBand(job.Interactive))
		require.Equal(t, job.Normal, first.Band())
		require.Equal(t, "bulk", b.next(time.Second).ID)
	})
}

func keysOf(jobs []job.Job) (keys []string) {
	for _, j := range jobs {
		keys = append(keys, j.Key)
	}
	return slices.Clip(keys)
}
