package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// A job that nobody gives to an idle instance that could run it is reported until
// it runs.
func TestStuckJobsAreSeen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.reaches(b.submit(picture), job.Done)
		b.Dispatcher.Close()
		b.Dispatcher = New(b.config) // its loop does not run yet
		b.loops.Go(func() { b.followFleet(b.ctx) })
		b.loops.Go(func() { b.watch(b.ctx) })
		key := b.submit(picture)
		eventually(t, func() bool { return b.Stuck() == 1 }, deadline, 10*time.Millisecond)
		require.Contains(t, b.logged(), "jobs wait beside an idle instance")
		b.loops.Go(func() { b.loop(b.ctx) })
		b.reaches(key, job.Done)
		eventually(t, func() bool { return b.Stuck() == 0 }, deadline, 10*time.Millisecond)
	})
}

// However many jobs an instance does not take now, the job behind them runs.
func TestJobBehindManyThatRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		var resting []string
		for range 130 {
			resting = append(resting, b.submit(picture))
			b.refused.note(resting[len(resting)-1], time.Hour, false)
		}
		key := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(key, job.Done)
		for _, key := range resting {
			require.Zero(t, b.job(key).Fence, "it was not claimed")
		}
	})
}

// A job that cannot be claimed does not hold up the others.
func TestJobThatCannotBeClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		broken := b.submit(picture)
		b.record(broken, "kills", "none") // its record cannot be read
		odd := b.submit(picture)
		b.record(odd, "not_before", "0x") // the script fails
		key := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(key, job.Done)
	})
}
