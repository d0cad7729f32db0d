package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const gib = 1 << 30

// crowd says how much of an instance's GPU memory other programs hold.
func (b *dispatching) crowd(s *scripted, others int64) {
	i, known := b.fleet.Instance(s.name)
	require.True(b.t, known)
	i.Report.OthersMemory = others
	b.fleet.Observe(i.Report)
}

// A job that takes more memory than other programs leave waits for an instance with enough.
// Where there is none it runs all the same.
func TestOtherProgramsHoldTheMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		crowded := b.sized(24)
		b.crowd(crowded, 20*gib)
		b.connects(1)
		shape := shapeOf(t, b, endless)
		s, ok := schedule.DecodeStructure(shape)
		require.True(t, ok)
		b.durations.addNeed(schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: b.gpuOf(crowded.name)}, schedule.Need{Work: s.Work, Bytes: 12 * gib})

		alone := b.submit(endless, withShape(shape))
		b.runs(alone)
		require.Equal(t, crowded.name, b.job(alone).Run.Instance, "there is no other")
		must(b.queue.Cancel(t.Context(), alone))
		b.reaches(alone, job.Cancelled)

		roomy := b.sized(16)
		b.connects(2)
		first, second := b.submit(endless, withShape(shape)), b.submit(endless, withShape(shape))
		eventually(t, func() bool { return b.job(first).State == job.Running || b.job(second).State == job.Running }, deadline, 10*time.Millisecond)
		running, waiting := first, second
		if b.job(second).State == job.Running {
			running, waiting = second, first
		}
		require.Equal(t, roomy.name, b.job(running).Run.Instance)
		small := b.submit(picture)
		b.reaches(small, job.Done)
		require.Equal(t, job.Queued, b.job(waiting).State, "it waits for the other instance while that is there")
		require.Zero(t, b.job(waiting).Attempts, "which counts as no attempt")

		b.crowd(crowded, 0)
		b.runs(waiting)
		require.Equal(t, crowded.name, b.job(waiting).Run.Instance)
	})
}

func TestMemoryOfAnInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		require.EqualValues(t, 4, fleet.InstanceReport{VRAMTotal: 24, OthersMemory: 20}.Memory())
		require.Zero(t, fleet.InstanceReport{OthersMemory: 20}.Memory())
	})
}
