package dispatch

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

func inBand(band job.Band) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Band = band }
}

// newPreempting is a hub with busy instances that interrupts bulk runs at once.
func newPreempting(t *testing.T, count int, band job.Band) (b *dispatching, running []string) {
	b = newDispatching(t, count, func(b *dispatching, _ *Config) { b.settings.PreemptBulk = time.Millisecond })
	for range count {
		key := b.submit(endless, inBand(band))
		b.runs(key)
		running = append(running, key)
	}
	return b, running
}

// goesOn watches a run for several times as long as it takes to interrupt it, and requires that it
// goes on.
func (b *dispatching) goesOn(key string) {
	fence := b.Job(key).Fence
	for watched := time.NewTimer(5 * makeWayPause); ; {
		select {
		case <-watched.C:
			return
		case <-time.After(makeWayPause / 10):
			j := b.Job(key)
			require.Equal(b.t, job.Running, j.State)
			require.Equal(b.t, fence, j.Fence)
		}
	}
}

// An interactive job takes the place of a bulk run, which goes on later as if it had never been
// given out, and is not interrupted again.
func TestPreempt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newPreempting(t, 1, job.Bulk)
		b.reaches(b.submit(picture, inBand(job.Interactive)), job.Done)
		b.runs(running[0])
		j := b.Job(running[0])
		require.True(t, j.Preempted)
		require.Equal(t, 1, j.Attempts)
		require.Zero(t, j.Excuses)
		require.Empty(t, j.Lost)

		waits := b.submit(picture, inBand(job.Interactive))
		b.goesOn(running[0])
		b.Runs.Cancel(running[0])
		b.reaches(waits, job.Done)
	})
}

// One bulk run, the youngest, makes way for one interactive job.
func TestPreemptTheYoungest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running := newPreempting(t, 3, job.Bulk)
		key := b.submit(endless, inBand(job.Interactive))
		b.runs(key)
		// Its instance is free for the interactive job before the queue has it back.
		b.reaches(running[2], job.Queued)
		for _, other := range running[:2] {
			require.Equal(t, job.Running, b.Job(other).State)
			require.False(t, b.Job(other).Preempted)
		}
		b.Runs.Cancel(key)
	})
}

// Anything but a young bulk run goes on, and only interactive jobs interrupt.
func TestPreemptNot(t *testing.T) {
	type row struct {
		running, waiting job.Band
		change           func(b *dispatching, key string)
	}
	inBubbles(t, map[string]row{
		"a normal run":            {running: job.Normal, waiting: job.Interactive},
		"an interactive run":      {running: job.Interactive, waiting: job.Interactive},
		"for a normal job":        {running: job.Bulk, waiting: job.Normal},
		"for another bulk job":    {running: job.Bulk, waiting: job.Bulk},
		"the operator has it off": {running: job.Bulk, waiting: job.Interactive, change: func(b *dispatching, _ string) { b.set(func(s *Settings) { s.PreemptBulk = 0 }) }},
		"the job may still wait":  {running: job.Bulk, waiting: job.Interactive, change: func(b *dispatching, _ string) { b.set(func(s *Settings) { s.PreemptBulk = time.Hour }) }},
		"half of it is done": {running: job.Bulk, waiting: job.Interactive, change: func(b *dispatching, key string) {
			conn := b.Instances.Get(b.instances[0].name)
			r := b.Runs.Get(key)
			// The queue knows that it is running before the connection notes since when.
			eventually(b.t, func() bool { _, began := conn.RanFor(r.Holder(), time.Now()); return began }, deadline, time.Millisecond)
			<-time.After(youngUnknown)
		}},
		"the instance is reserved for others": {running: job.Bulk, waiting: job.Interactive, change: func(b *dispatching, _ string) {
			b.set(func(s *Settings) { s.Reserved = schedule.Reservations{{Instances: "*", Tenants: []string{"others"}}} })
		}},
	}, func(t *testing.T, c row) {
		b, running := newPreempting(t, 1, c.running)
		if c.change != nil {
			c.change(b, running[0])
		}
		b.submit(picture, inBand(c.waiting))
		b.goesOn(running[0])
		require.False(t, b.Job(running[0]).Preempted)
	})
}

// An interactive job waiting at the instance behind a bulk run takes its place; any other leaves
// with it.
func TestPreemptWithNext(t *testing.T) {
	t.Parallel()
	for _, band := range []job.Band{job.Interactive, job.Bulk} {
		t.Run(string(band), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.Ahead = true })
				running := b.submit(endless, inBand(job.Bulk))
				b.runs(running)
				next := b.submit(picture, inBand(band))
				b.waitsThere(next)
				b.set(func(s *Settings) { s.PreemptBulk = time.Millisecond })
				if band == job.Interactive {
					b.signal.Wake()
				} else {
					b.reaches(b.submit(picture, inBand(job.Interactive)), job.Done)
					b.runs(running) // it comes first again
					b.Runs.Cancel(running)
				}
				b.reaches(next, job.Done)
				require.True(t, b.Job(running).Preempted)
			})
		})
	}
}

func TestYoung(t *testing.T) {
	t.Parallel()
	learned := schedule.Estimate{Source: schedule.Learned, Ran: 10 * time.Minute}
	for _, c := range []struct {
		ran  time.Duration
		e    schedule.Estimate
		want bool
	}{
		{time.Minute - time.Second, schedule.Estimate{}, true},
		{time.Minute, schedule.Estimate{}, false},
		{5*time.Minute - time.Second, learned, true},
		{5 * time.Minute, learned, false},
		{0, schedule.Estimate{Source: schedule.Learned}, false},
	} {
		require.Equal(t, c.want, young(c.ran, c.e), "%v of %v", c.ran, c.e.Ran)
	}
}

// evicted drains an instance and takes back what it is running until the jobs are waiting or
// running elsewhere.
func (b *dispatching) evicted(from *scripted, keys ...string) {
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
		require.Equal(t, []run.Cause{run.Evicted}, slices.Compact(b.retried()))
		b.fleet.SetDraining(from.name, false)
		b.runs(key)
		require.Equal(t, 1, b.Job(key).Attempts)
		b.cancels(key)
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
