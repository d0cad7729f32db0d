package dispatch

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// evicted drains an instance and takes back what it is running until the jobs are waiting or
// running elsewhere.
func (b *dispatching) evicted(from *scripted, keys ...string) {
	b.t.Helper()
	b.fleet.SetDraining(from.name, true)
	for _, key := range keys {
		fence := b.Job(key).Fence
		eventually(b.t, func() bool {
			b.Instances.Evict(from.name)
			j := b.Job(key)
			return j.State == job.Queued || j.Fence != fence
		}, deadline, 10*time.Millisecond)
	}
}

// A run that is taken back from its instance stops there and goes on elsewhere, as if it had never
// been there.
func TestEvict(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(endless)
		b.runs(key)
		from := b.at(key)
		b.evicted(from, key)
		eventually(t, func() bool { return from.Remaining() == 0 }, deadline, 10*time.Millisecond)
		j := b.Job(key)
		require.Zero(t, j.Attempts)
		require.Zero(t, j.Excuses)
		require.Empty(t, j.Lost)

		for range 12 { // more often than any limit on lost runs
			to := newScripted(t)
			b.add(to)
			b.runs(key)
			require.Equal(t, to.name, b.Job(key).Run.Instance)
			b.evicted(to, key)
		}
		require.Equal(t, []Cause{Evicted}, slices.Compact(b.retried()))
		b.fleet.SetDraining(from.name, false)
		b.runs(key)
		require.Equal(t, 1, b.Job(key).Attempts)
		b.Runs.Cancel(key)
		b.reaches(key, job.Cancelled)
		b.Instances.Evict("nobody")
	})
}

// Both jobs of an instance leave it.
func TestEvictWithNext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newAhead(t, 1)
		next := b.submit(endless) // it may begin before it is taken back, and would end
		from := b.waitsThere(next)
		b.evicted(from, running[0], next)
		eventually(t, func() bool { return from.Remaining() == 0 }, deadline, 10*time.Millisecond)
		for _, key := range []string{running[0], next} {
			require.Zero(t, b.Job(key).Attempts)
			require.Empty(t, b.Job(key).Lost)
		}
	})
}

// A run that no interrupt can end is given up.
func TestEvictWithoutEffect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.instances[0].on("POST /interrupt", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusOK) })
		key := b.submit(endless)
		b.runs(key)
		b.set(func(s *Settings) { s.StallTimeout = 500 * time.Millisecond })
		b.evicted(b.at(key), key)
		require.Equal(t, job.Queued, b.Job(key).State)
		require.Contains(t, b.logged(), "keeps running a prompt that was taken back")
	})
}

// A job that its client cancels meanwhile ends.
func TestEvictAndCancel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, cancelFirst := range []bool{false, true} {
			b := newDispatching(t, 1)
			key := b.submit(endless)
			b.runs(key)
			from := b.at(key)
			b.fleet.SetDraining(from.name, true)
			ask := func(first bool) {
				if first {
					must(b.Queue.Cancel(t.Context(), key))
					b.Runs.Cancel(key)
				} else {
					b.Instances.Evict(from.name)
				}
			}
			ask(cancelFirst)
			ask(!cancelFirst)
			b.reaches(key, job.Cancelled)
		}
	})
}
