package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
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
	beside.Bubble(t, func(t *testing.T) {
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

// What a reader was given does not change when the view looks again.
func TestChangeIsACopy(t *testing.T) {
	t.Parallel()
	v := &boardView{}
	v.seen.counts.Waiting = 1
	c := v.everything()
	v.seen.counts.Waiting = 2
	require.Equal(t, int64(1), int64(c.Counts.Waiting))
}

// A job that changes while it is read is read again, as what was read may be what it was before.
func TestTouchWhileItIsRead(t *testing.T) {
	t.Parallel()
	var jobs boardJobs
	reads, touch := 0, true
	get := func(_ context.Context, keys []string) ([]job.Job, error) {
		reads++
		if touch {
			jobs.touch("a")
		}
		return []job.Job{{Key: keys[0]}}, nil
	}
	for i, again := range []bool{true, true, false} {
		before := reads
		known, err := jobs.read(t.Context(), get, []string{"a"})
		require.NoError(t, err)
		require.Contains(t, known, "a")
		require.Equal(t, again, reads > before, i)
		touch = false
	}
	jobs.forget()
	require.Empty(t, jobs.of([]string{"a"}, jobs.known["a"].at))
}

// body is a stored body with a long key, of which four fit.
func body(tenant string, n int) StoredBody {
	key := fmt.Sprintf("%s %d ", tenant, n)
	return StoredBody{Key: key + strings.Repeat("x", maxCachedBodies/4-len(key))}
}

func TestBodyCacheIsBounded(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var c bodyCache
		kept := func(tenant string, n int) bool {
			has, missing := c.get(tenant, []string{body(tenant, n).Key})
			require.Equal(t, 1, len(has)+len(missing))
			return len(has) == 1
		}
		for n := range 6 {
			c.put("a", body("a", n))
		}
		require.True(t, kept("a", 0), "what the next listing begins with stays")
		require.True(t, kept("a", 3))
		require.False(t, kept("a", 4), "four fit")
		require.LessOrEqual(t, c.size, int64(maxCachedBodies))

		time.Sleep(time.Second)
		c.put("b", body("b", 0))
		require.False(t, kept("a", 0), "another tenant's make way")
		require.True(t, kept("b", 0))

		c.put("b", body("b", 1))
		c.retain("b", []job.Job{{Key: body("b", 1).Key}})
		require.False(t, kept("b", 0), "it has ended")
		require.True(t, kept("b", 1))
		require.Equal(t, body("b", 1).Held(), c.size)

		time.Sleep(bodiesKeptFor + time.Second)
		c.retain("c", nil)
		require.Zero(t, c.size, "nobody has listed b's for a minute")
		require.Empty(t, c.tenants)
	})
}
