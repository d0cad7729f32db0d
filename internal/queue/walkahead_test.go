package queue_test

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// where returns an instance and a hub, often those of a run that another one may wait
// behind.
func (w *walk) where() (instance, hub string) {
	instance, hub = fmt.Sprint("gpu", w.rand.IntN(4)), fmt.Sprint("hub", w.rand.IntN(2))
	if j := w.anyJob(job.Running); j != nil && w.rand.IntN(2) == 0 {
		return j.Run.Instance, j.Run.Hub
	}
	return instance, hub
}

// after returns, now and then, a run that a claim releases if its instance is the one
// that is asked for.
func (w *walk) after() job.Run {
	if w.rand.IntN(3) > 0 {
		return job.Run{}
	}
	return w.anyRun()
}

// vacate does what a claim does with the run that its instance has. free says that the
// instance has no other run, and behind that the job may wait there.
func (m *model) vacate(r queue.ClaimRequest) (free, behind bool) {
	holder := m.jobs[m.instances[r.Instance]]
	switch {
	case holder == nil:
		return true, false
	case holder.Key == r.After.Key && holder.Fence == r.After.Fence:
		m.free(holder)
		return true, false
	}
	return false, r.Ahead && holder.State == job.Running && holder.Run.Hub == r.Hub
}

// begin gives a run that waited behind another one the instance, unless it was released.
func (m *model) begin(j *modelJob) {
	if !j.Ahead || j.State != job.Leased {
		return
	}
	if j.Ahead = false; !j.released {
		m.instances[j.Run.Instance] = j.Key
	}
}

// unused says that a run is given back as if it had never been given out. That is for
// runs that wait at an instance.
func (w *walk) unused(run job.Run) bool {
	j := w.m.held(run)
	return j != nil && j.Ahead && w.rand.IntN(2) == 0
}

// recall withdraws a job that waits at an instance: to its client it still waits.
func (w *walk) recall(j *modelJob) bool {
	if !j.Ahead || j.State != job.Leased || j.cancelAsked {
		return false
	}
	j.cancelAsked, j.withdrawn = true, true
	return true
}

// compareInstances compares the runs that have an instance to themselves.
func (w *walk) compareInstances() {
	require.Equal(w.t, w.m.instances, must(w.db.Client().HGetAll(w.ctx, w.db.Key("q", "instances")).Result()))
}
