package queue_test

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// steer changes one or more things of a job at once.
func (w *walk) steer() {
	j := w.anyJob()
	if j == nil {
		return
	}
	var s queue.Steering
	if w.rand.IntN(2) == 0 {
		priority := w.rand.IntN(5) - 2
		s.Priority = &priority
	}
	s.Position = []queue.Position{"", "", queue.Front, queue.End}[w.rand.IntN(4)]
	if w.rand.IntN(2) == 0 || j.stopped { // else little would wait
		paused := w.rand.IntN(3) == 0
		s.Paused = &paused
	}
	got, err := w.Steer(w.ctx, j.Key, s)
	w.note("steer %s: %+v, %v", j.Key, s, err)
	if j.State != job.Queued {
		require.ErrorIs(w.t, err, queue.ErrNotQueued)
		return
	}
	require.NoError(w.t, err)
	w.last = got
	if s.Priority != nil {
		j.Priority = *s.Priority
	}
	mark := j.Band().Mark()
	if s.Priority != nil {
		j.Rank = mark + job.RankPrefix(j.Priority, 0)[:4] + j.Rank[len(mark)+4:]
	}
	switch s.Position {
	case queue.Front:
		next := max(w.m.numbers[j.Tenant], w.m.highest[j.Tenant])
		w.m.numbers[j.Tenant], j.placed = next+1, false
		place := 0 - float64(next) // not minus zero
		j.Rank = mark + job.RankPrefix(j.Priority, place) + strings.SplitN(j.Rank, ":", 3)[2]
	case queue.End:
		j.placed = false
		before := w.m.live(func(o *modelJob) bool {
			return o != j && o.State == job.Queued && !o.stopped && o.lane() == j.lane() && o.Priority == j.Priority
		})
		if len(before) > 0 {
			last := before[len(before)-1]
			require.Equal(w.t, last.Rank[:len(mark)+21], got.Rank[:len(mark)+21])
			require.Greater(w.t, got.Rank, last.Rank)
			j.Rank = got.Rank
		}
	}
	if s.Paused != nil {
		j.stopped = *s.Paused
	}
	require.Equal(w.t, j.Priority, got.Priority)
	require.Equal(w.t, j.Rank, got.Rank)
	require.Equal(w.t, j.stopped, got.Paused)
}
