package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// watchShelf stands in for the queue.
type watchShelf struct {
	mu    sync.Mutex
	jobs  map[string]job.Job
	err   error
	reads int
}

func (s *watchShelf) put(j job.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[j.Key] = j
}

func (s *watchShelf) read(_ context.Context, keys []string) (found []job.Job, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	for _, key := range keys {
		if j, ok := s.jobs[key]; ok {
			found = append(found, j)
		}
	}
	return found, s.err
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &watchShelf{jobs: map[string]job.Job{}}
		w := newWatches(s.read, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.run(ctx); close(done) }()
		time.Sleep(time.Hour)
		require.Zero(t, s.reads, "nobody watches, so nothing is read")

		waits := job.Job{Key: "a", State: job.Queued}
		s.put(waits)
		news, stop := w.Watch(waits)
		time.Sleep(time.Second)
		require.Empty(t, news, "there is no news")
		s.put(job.Job{Key: "a", State: job.Leased, Ahead: true})
		time.Sleep(time.Second)
		require.Empty(t, news, "to its client it still waits")
		s.put(job.Job{Key: "a", State: job.Running, Progress: 0.5})
		require.Equal(t, job.Running, (<-news).State)
		late, stopLate := w.Watch(waits)
		require.Equal(t, job.Running, (<-late).State, "who knows less is told at once")
		stopLate()

		s.mu.Lock()
		s.err = errors.New("away")
		s.mu.Unlock()
		s.put(job.Job{Key: "a", State: job.Running, Progress: 0.7})
		time.Sleep(time.Second)
		require.Empty(t, news)
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		time.Sleep(time.Second)
		s.put(job.Job{Key: "a", State: job.Done, Progress: 1})
		time.Sleep(time.Second)
		require.Equal(t, job.Done, (<-news).State, "a slow reader gets the latest")
		s.mu.Lock()
		delete(s.jobs, "a")
		s.mu.Unlock()
		_, there := <-news
		require.False(t, there)
		stop()
		require.Empty(t, w.jobs)
		end()
		<-done
	})
}

// count returns how many jobs are watched.
func (s *Watches) count() int { return len(s.keys()) }

// told records what a confirmations reports.
type told struct {
	mu    sync.Mutex
	trips [][]queue.Confirmed
	fail  error
}

func (r *told) tell(ctx context.Context, ends ...queue.Confirmed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.fail == nil {
		r.trips = append(r.trips, ends)
	}
	return r.fail
}

func (r *told) answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *told) sizes() (sizes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ends := range r.trips {
		sizes = append(sizes, len(ends))
	}
	return sizes
}

func confirmed(n int) queue.Confirmed {
	return queue.Confirmed{Tenant: "tenant", ID: fmt.Sprint(n)}
}

func TestConfirmations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, c *confirmations, r *told){
		"the first goes at once, and the next together": func(t *testing.T, c *confirmations, r *told) {
			c.add(confirmed(0))
			synctest.Wait()
			require.Equal(t, []int{1}, r.sizes())
			for n := range 2*confirmBatch + 7 {
				c.add(confirmed(1 + n))
			}
			synctest.Wait()
			require.Equal(t, []int{1}, r.sizes())
			time.Sleep(3 * confirmPause)
			synctest.Wait()
			require.Equal(t, []int{1, confirmBatch, confirmBatch, 7}, r.sizes())
			for n, end := range slices.Concat(r.trips...) {
				require.Equal(t, confirmed(n), end)
			}
			time.Sleep(confirmPause)
			c.add(confirmed(0))
			synctest.Wait()
			require.Len(t, r.sizes(), 5, "after a pause it is the first again")
		},
		"what Redis cannot be told is told later": func(t *testing.T, c *confirmations, r *told) {
			r.answer(queue.ErrUnavailable)
			for n := range maxUnsaid + 10 {
				c.add(confirmed(n))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, r.sizes())
			require.Len(t, c.unsaid, maxUnsaid)
			require.ErrorIs(t, c.flush(t.Context()), queue.ErrUnavailable)
			r.answer(nil)
			require.NoError(t, c.flush(t.Context()))
			require.Empty(t, c.unsaid)
			require.Len(t, slices.Concat(r.trips...), maxUnsaid)
		},
		"what is wrong is not told for ever": func(t *testing.T, c *confirmations, r *told) {
			r.answer(errors.New("corrupt"))
			c.add(confirmed(0))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, c.unsaid)
		},
		"the rest is told at the end": func(t *testing.T, c *confirmations, r *told) {
			for n := range 5 {
				c.add(confirmed(n))
			}
			c.close(t.Context())
			require.Len(t, slices.Concat(r.trips...), 5)
			c.close(t.Context())
			c.add(confirmed(9))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &told{}
				c := newConfirmations(r.tell, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
				test(t, c, r)
				c.close(t.Context())
			})
		})
	}
}
