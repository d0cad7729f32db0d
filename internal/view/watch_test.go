package view

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
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
		w := NewWatches(s.read, func() *slog.Logger { return slog.New(slog.DiscardHandler) })
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
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
