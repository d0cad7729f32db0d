package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// inBand puts a submission into a band.
func inBand(band job.Band) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Band = band }
}

// A higher band goes first, whoever is in it and whatever its priority; after every nine of its
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
		var order []string
		last := map[job.Band]int{}
		for n := range 36 {
			j := b.next(time.Second)
			require.True(t, len(j.Rank) > 0 && j.Rank[:1] == j.Band().Mark() || j.Band() == job.Normal)
			order = append(order, j.ID)
			require.LessOrEqual(t, n-last[j.Band()], 11, "%s waits for ever: %v", j.Band(), order)
			last[j.Band()] = n
		}
		require.Equal(t, ids(w.Jobs), order)
		require.Equal(t, 9, strings.Count(strings.Join(order[:10], " "), "person"), order)
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

// order returns the waiting jobs in the order in which they are given out.
func (b *bench) order() []string {
	return ids(must(b.Window(b.t.Context(), queue.Wanted{}, 0, 100)).Jobs)
}

func (b *bench) steer(j job.Job, s queue.Steering) job.Job {
	return must(b.Steer(b.t.Context(), j.Key, s))
}

func TestSteerMovesWithinTheTenant(t *testing.T) {
	eachOf(t, queue.Options{}, orders, func(t *testing.T, b *bench, fifo bool) {
		b.SetLimits(queue.Limits{FIFO: fifo})
		first, second, third := b.enqueue("a"), b.enqueue("b"), b.enqueue("c")
		b.steer(third, queue.Steering{Position: queue.Front})
		require.Equal(t, []string{"c", "a", "b"}, b.order())
		b.steer(second, queue.Steering{Position: queue.Front})
		require.Equal(t, []string{"b", "c", "a"}, b.order(), "the last one to go there is first")
		b.steer(third, queue.Steering{Position: queue.End})
		b.enqueue("d")
		require.Equal(t, []string{"b", "a", "c", "d"}, b.order())
		high := 5
		j := b.steer(first, queue.Steering{Priority: &high, Position: queue.End})
		require.Equal(t, 5, j.Priority)
		require.Equal(t, "0", j.Number, "the client's number stays")
		require.Equal(t, []string{"a", "b", "c", "d"}, b.order(), "the end of its priority")
	})
}

// A job that its owner has paused is not given out, but is listed and counts for the limits. It keeps its place.
func TestPausedJobsWaitAndCount(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		yes, no := true, false
		b.SetLimits(queue.Limits{MaxQueue: 3})
		first, second := b.enqueue("a"), b.enqueue("b")
		require.True(t, b.steer(first, queue.Steering{Paused: &yes}).Paused)
		b.enqueue("c")
		require.ErrorIs(t, errOf(b.Enqueue(t.Context(), submission("d"))), queue.ErrFull)
		require.Len(t, must(b.Live(t.Context(), "tenant")), 3)
		before := b.share("tenant")
		must(b.Sweep(t.Context(), "hub/1", 10))
		require.Equal(t, before, b.share("tenant"))
		require.Equal(t, []string{"b", "c"}, b.order(), "the sweep leaves it paused")
		require.ErrorIs(t, errOf(b.try(first)), queue.ErrNotQueued)
		require.False(t, b.steer(first, queue.Steering{Paused: &no}).Paused)
		require.Equal(t, []string{"a", "b", "c"}, b.order(), "its old place")
		require.ErrorIs(t, errOf(b.Steer(t.Context(), "none", queue.Steering{Paused: &yes})), queue.ErrNotFound)
		b.steer(second, queue.Steering{Paused: &yes})
		must(b.Cancel(t.Context(), second.Key))
		require.Zero(t, must(b.db.Client().Exists(t.Context(), b.db.Key("q", "paused")).Result()), "nothing is left of it")
	})
}

// What is stopped gets no more runs; whatever is running goes on, and nothing else is affected.
func TestStops(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		a, other := b.enqueue("a", from("a", "a")), b.enqueue("b", from("b", "b"))
		claim := func(j job.Job, instance string) error {
			_, err := b.Claim(t.Context(), queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Instance: instance, Hub: "hub/1", Upstream: uuid.NewString()})
			return err
		}
		set := func(s queue.Stop, stop, changes bool) {
			require.Equal(t, changes, must(b.SetStop(t.Context(), s, stop)))
		}
		set(queue.StopTenant("a"), true, true)
		set(queue.StopTenant("a"), true, false)
		require.Equal(t, []string{"b"}, b.seen())
		require.ErrorIs(t, claim(a, "gpu"), queue.ErrCapped)
		set(queue.StopAll, true, true)
		require.Empty(t, b.seen())
		require.ErrorIs(t, claim(other, "gpu"), queue.ErrCapped)
		set(queue.StopInstance("gpu"), true, true)
		stops := must(b.Stops(t.Context()))
		require.Equal(t, map[queue.Stop]bool{queue.StopAll: true, queue.StopTenant("a"): true, queue.StopInstance("gpu"): true}, stops)

		set(queue.StopAll, false, true)
		require.Equal(t, []string{"b"}, b.seen())
		require.ErrorIs(t, claim(other, "gpu"), queue.ErrTaken)
		require.NoError(t, claim(other, "gpu2"))
		set(queue.StopTenant("a"), false, true)
		set(queue.StopTenant("a"), false, false)
		set(queue.StopInstance("gpu"), false, true)
		require.NoError(t, claim(a, "gpu"))
		stops = must(b.Stops(t.Context()))
		require.Empty(t, stops)
	})
}

// The scaler lets go on only what it has stopped itself; the operator has the last word.
func TestStopsOfTheScaler(t *testing.T) {
	t.Parallel()
	const operator, scaler = true, false
	type step struct{ byHand, stop bool }
	gpu := queue.StopInstance("gpu")
	for name, c := range map[string]struct {
		steps   []step
		stopped bool
	}{
		"its own":                          {[]step{{scaler, true}, {scaler, false}}, false},
		"the operator's":                   {[]step{{operator, true}, {scaler, false}}, true},
		"both, the operator first":         {[]step{{operator, true}, {scaler, true}, {scaler, false}}, true},
		"both, the scaler first":           {[]step{{scaler, true}, {operator, true}, {scaler, false}}, true},
		"the operator undoes the scaler's": {[]step{{scaler, true}, {operator, false}}, false},
		"its own, after the operator's":    {[]step{{operator, true}, {operator, false}, {scaler, true}, {scaler, false}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, queue.Options{}, func(t *testing.T, b *bench) {
				for _, s := range c.steps {
					if s.byHand {
						must(b.SetStop(t.Context(), gpu, s.stop))
					} else {
						require.NoError(t, b.Scale(t.Context(), gpu, s.stop))
					}
				}
				require.Equal(t, c.stopped, must(b.Stops(t.Context()))[gpu])
			})
		})
	}
	t.Run("the operator's deadline", func(t *testing.T) {
		each(t, queue.Options{}, func(t *testing.T, b *bench) {
			require.NoError(t, b.Drain(t.Context(), "gpu", time.Hour))
			require.NoError(t, b.Scale(t.Context(), gpu, true))
			require.Len(t, must(b.Deadlines(t.Context())), 1)
		})
	})
}

// A deadline belongs to a drain: a new drain replaces it, and it ends with the drain.
func TestDrainDeadlines(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		left := func() map[queue.Stop]queue.Deadline { return must(b.Deadlines(t.Context())) }
		require.Empty(t, left())
		gpu := queue.StopInstance("gpu")
		require.NoError(t, b.Drain(t.Context(), "gpu", time.Hour))
		require.NoError(t, b.Drain(t.Context(), "other", 0))
		require.Len(t, left(), 1)
		require.Greater(t, left()[gpu].Left, 59*time.Minute)
		require.LessOrEqual(t, left()[gpu].Left, time.Hour)
		require.Equal(t, map[queue.Stop]bool{gpu: true, queue.StopInstance("other"): true}, must(b.Stops(t.Context())))

		require.NoError(t, b.Drain(t.Context(), "gpu", time.Millisecond))
		require.Eventually(t, func() bool { return left()[gpu].Left < 0 }, time.Minute, time.Millisecond)
		require.NoError(t, b.Drain(t.Context(), "gpu", 0))
		require.Empty(t, left())
		require.NoError(t, b.Drain(t.Context(), "gpu", time.Hour))
		must(b.SetStop(t.Context(), gpu, false))
		require.Empty(t, left())
	})
}
