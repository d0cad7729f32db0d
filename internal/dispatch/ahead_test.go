package dispatch

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// newAhead is newDispatching with Settings.Ahead, and an endless run on each instance.
func newAhead(t *testing.T, count int) (b *dispatching, running []string) {
	b = newDispatching(t, count, func(b *dispatching, _ *Config) { b.settings.Ahead = true })
	for range count {
		key := b.submit(endless)
		b.runs(key)
		running = append(running, key)
	}
	return b, running
}

// at returns the instance of a job.
func (b *dispatching) at(key string) *scripted {
	for _, i := range b.instances {
		if i.name == b.Job(key).Run.Instance {
			return i
		}
	}
	b.t.Fatal("the job is nowhere")
	return nil
}

// waitsThere waits until a job is waiting at an instance behind another one.
func (b *dispatching) waitsThere(key string) *scripted {
	eventually(b.t, func() bool { return b.Job(key).Ahead }, deadline, 10*time.Millisecond)
	i := b.at(key)
	eventually(b.t, func() bool { return i.Remaining() == 2 }, deadline, 10*time.Millisecond)
	return i
}

// An instance gets its next job before it is free, and no more than one.
func TestNextJobWaitsAtTheInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 1)
		second := b.submit(endless)
		i := b.waitsThere(second)
		third := b.submit(picture)
		require.Never(t, func() bool { return b.Job(third).State != job.Queued }, 100*time.Millisecond, 10*time.Millisecond)
		require.Equal(t, job.Leased, b.Job(second).State)
		require.Zero(t, b.Job(second).StartedAt)

		b.cancels(running[0])
		b.runs(second)
		require.False(t, b.Job(second).Ahead)
		b.waitsThere(third)
		b.cancels(second)
		b.reaches(third, job.Done)
		require.Equal(t, 3, i.Started())
		require.Empty(t, b.Job(third).Lost)
	})
}

// A job waiting at an instance runs on whichever instance is free first, as if it had never been
// given out.
func TestWaitingJobIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 2)
		key := b.submit(endless)
		there := b.waitsThere(key)
		for _, other := range running {
			if b.at(other) != there {
				b.Runs.Cancel(other)
			}
		}
		b.runs(key)
		require.NotEqual(t, there.name, b.at(key).name)
		j := b.Job(key)
		require.Equal(t, 1, j.Attempts)
		require.Zero(t, j.Excuses)
		require.Empty(t, j.Lost)
		require.Equal(t, 1, there.Remaining())
		require.Equal(t, 1, there.Started())
	})
}

// A job that begins before it can be taken back runs where it is, and only there.
func TestJobBeginsBeforeItIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 2)
		key := b.submit(endless)
		there := b.waitsThere(key)
		before := ""
		for _, other := range running {
			if b.at(other) == there {
				before = other
			}
		}
		tried := make(chan struct{}, 16)
		there.on("POST /queue", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			b.Runs.Cancel(before)
			for there.Started() < 2 && r.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			next.ServeHTTP(w, r)
			tried <- struct{}{}
		})
		for _, other := range running {
			if other != before {
				b.Runs.Cancel(other)
			}
		}
		<-tried
		b.runs(key)
		require.Equal(t, there.name, b.at(key).name)
		require.Equal(t, 1, b.Job(key).Attempts)
		b.cancels(key)
		started := 0
		for _, i := range b.instances {
			started += i.Started()
		}
		require.Equal(t, 3, started)
	})
}

// Removing a job that waits at an instance removes only that one: the run before it goes on, and no
// entry is left.
func TestWaitingJobIsCancelled(t *testing.T) {
	inBubbles(t, map[string]func(b *dispatching, key string) error{
		"deleted": func(b *dispatching, key string) error {
			gone, err := b.Queue.CancelWaiting(t.Context(), []string{key})
			require.Equal(t, []string{key}, gone)
			return err
		},
		"cancelled": func(b *dispatching, key string) error {
			_, err := b.Queue.Cancel(t.Context(), key)
			return err
		},
		"withdrawn": func(b *dispatching, key string) error {
			_, err := b.Queue.Withdraw(t.Context(), key, false)
			return err
		},
	}, func(t *testing.T, cancel func(b *dispatching, key string) error) {
		b, running := newAhead(t, 1)
		key, next := b.submit(endless), ""
		there := b.waitsThere(key)
		next = b.submit(picture)
		require.NoError(t, cancel(b, key))
		b.reaches(key, job.Cancelled)
		_, err := b.Queue.HistoryEntry(t.Context(), job.DefaultTenant, key)
		require.ErrorIs(t, err, queue.ErrNotFound)
		b.waitsThere(next)
		require.Equal(t, job.Running, b.Job(running[0]).State)
		require.Equal(t, 1, there.Started())
		b.Runs.Cancel(running[0])
		b.reaches(next, job.Done)
		require.Equal(t, 2, there.Started())
	})
}

// A draining instance keeps the run and gives the waiting job back.
func TestDrainedInstanceGivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 1)
		key := b.submit(picture)
		there := b.waitsThere(key)
		b.fleet.SetDraining(there.name, true)
		require.Empty(t, b.reaches(key, job.Queued).Lost)
		require.Equal(t, 1, there.Remaining())
		require.Equal(t, job.Running, b.Job(running[0]).State)
		b.fleet.SetDraining(there.name, false)
		b.waitsThere(key)
		b.Runs.Cancel(running[0])
		b.reaches(key, job.Done)
	})
}

// The instance may begin the next job while the hub is still handling the end of the one before it:
// that does not count as hanging, however long the next one has waited there.
func TestNextJobIsShownAsRunning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 1)
		next := b.submit(picture)
		there := b.waitsThere(next)
		var looks atomic.Int64
		there.on("GET /queue", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			looks.Add(1)
			var both [][]any
			for _, key := range []string{running[0], next} {
				both = append(both, []any{1, b.Runs.Get(key).Lease().Upstream, map[string]any{}, map[string]any{}, []string{}})
			}
			require.NoError(t, json.NewEncoder(w).Encode(map[string]any{"queue_running": both, "queue_pending": []any{}}))
		})
		muted := time.Now()
		there.SetFault(sim.Faults{Mute: true}) // previews of the running one would postpone the looks
		b.set(func(s *Settings) { s.StallTimeout = time.Second })
		b.Runs.Get(next).Holder().Tell(instance.Event{Kind: instance.Next}) // it looks at the clock again
		eventually(t, func() bool { return looks.Load() >= 2 && time.Since(muted) > 3*time.Second }, deadline, 100*time.Millisecond)
		there.SetFault(sim.Faults{})
		b.set(func(s *Settings) { s.StallTimeout = time.Minute })
		require.Empty(t, b.Job(next).Lost)
		require.True(t, b.Job(next).Ahead)
		b.cancels(running[0])
		b.reaches(next, job.Done)
		require.NotContains(t, b.logged(), "instance is unhealthy")
	})
}

// The next hub follows both the run and the job waiting behind it.
func TestBothRunsAreTakenOver(t *testing.T) {
	t.Parallel()
	for _, hub := range []string{"hub/2", "other/1"} {
		t.Run(hub, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, running := newAhead(t, 1)
				b.set(func(s *Settings) { s.StallTimeout = time.Second })
				key := b.submit(picture)
				there := b.waitsThere(key)
				sockets := there.countSockets()
				b.Dispatcher.Close()
				if hub == "other/1" {
					for _, k := range []string{running[0], key} {
						must(b.Queue.Adopt(t.Context(), b.Job(k).Run, "hub/1"))
					}
				}
				b.restart(hub)
				eventually(t, func() bool { return b.Runs.Get(running[0]) != nil && b.Runs.Get(key) != nil }, deadline, 10*time.Millisecond)
				must(b.Queue.Cancel(t.Context(), running[0]))
				b.reaches(running[0], job.Cancelled)
				require.Empty(t, b.reaches(key, job.Done).Lost)
				require.Equal(t, 2, there.Started())
				require.NotEmpty(t, sockets())
				for sid, most := range sockets() {
					require.Equal(t, 1, most, "ComfyUI silences one of two sockets with one id: %s", sid)
				}
			})
		})
	}
}

// countSockets counts the sockets that are open at the same time, by client id. The returned
// function gives the maximum of each so far.
func (s *scripted) countSockets() (most func() map[string]int) {
	var mu sync.Mutex
	open, top := map[string]int{}, map[string]int{}
	s.on("GET /ws", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		sid := r.URL.Query().Get("clientId")
		mu.Lock()
		open[sid]++
		top[sid] = max(top[sid], open[sid])
		mu.Unlock()
		next.ServeHTTP(w, r)
		mu.Lock()
		open[sid]--
		mu.Unlock()
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(top)
	}
}

// A waiting job is not blamed for the death of the instance.
func TestWaitingJobOutlivesItsInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 1)
		key := b.submit(picture)
		there := b.waitsThere(key)
		b.set(func(s *Settings) { s.ContactTimeout = time.Second })
		there.Kill()
		b.lost(running[0])
		b.lost(key)
		j := b.Job(key)
		require.Zero(t, j.Kills)
		require.Equal(t, 1, j.Excuses)
		must(b.Queue.Cancel(t.Context(), running[0]))
		there.Restart()
		b.reaches(key, job.Done)
	})
}

// An instance that gets its next job ahead of time gets one with the models that it has loaded, before
// one that came earlier: several in a row, without a gap.
func TestNextJobHasTheSameModels(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2, func(b *dispatching, _ *Config) { b.settings.Ahead, b.settings.Overtaking = true, time.Minute })
		b.haveModels()
		const one, other = "a.safetensors", "b.safetensors"
		runs := func(model string) (key string) {
			key = b.submit(endless, withModel(model))
			b.runs(key)
			return key
		}
		first, second := runs(one), runs(other)
		require.NotEqual(t, b.at(first), b.at(second))
		next := b.submit(endless, withModel(one))
		require.Equal(t, b.at(first), b.waitsThere(next))
		waits := b.submit(endless, withModel(other))
		require.Equal(t, b.at(second), b.waitsThere(waits))
		later, last := b.submit(endless, withModel(other)), b.submit(endless, withModel(one))
		b.cancels(first)
		b.runs(next)
		require.Equal(t, b.at(next), b.waitsThere(last), "although another job came earlier")
		require.Equal(t, job.Queued, b.Job(later).State)
	})
}
