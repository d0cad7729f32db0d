package queue_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

func (w *walk) renew() {
	hub := fmt.Sprint("hub", w.rand.IntN(2))
	var runs []job.Run
	for range w.rand.IntN(4) {
		runs = append(runs, w.anyRun())
	}
	got, err := w.Renew(w.ctx, hub, runs)
	w.note("renew %d", len(runs))
	require.NoError(w.t, err)
	var want queue.RenewResult
	for _, run := range runs {
		j := w.m.held(run)
		switch {
		case j == nil || j.Run.Hub != hub:
			want.Lost = append(want.Lost, run)
			continue
		case j.withdrawn:
			want.Withdrawn = append(want.Withdrawn, run)
		case j.cancelAsked:
			want.Cancelled = append(want.Cancelled, run)
		}
		j.expired = false
	}
	require.Equal(w.t, want, got)
}

func (w *walk) cancel() {
	j := w.anyJob()
	if j == nil {
		require.ErrorIs(w.t, errOf(w.Cancel(w.ctx, "unknown")), queue.ErrNotFound)
		return
	}
	got, err := w.Cancel(w.ctx, j.Key)
	w.note("cancel %s: was %s, %v", j.Key, got.Was, err)
	require.NoError(w.t, err)
	require.Equal(w.t, j.State, got.Was)
	w.withdraw(j)
	w.recall(j)
	if j.runs() {
		j.cancelAsked = true
	}
}

func (w *walk) withdraw(j *modelJob) bool {
	if j.State != job.Queued {
		return false
	}
	w.m.do(j, job.Cancel)
	j.gone = true
	w.m.turns.returned(j)
	w.m.left(j.Tenant)
	return true
}

func (w *walk) takeBack() {
	j := w.anyJob()
	if j == nil {
		require.ErrorIs(w.t, errOf(w.Withdraw(w.ctx, "unknown", true)), queue.ErrNotFound)
		return
	}
	listed := w.rand.IntN(2) == 0
	got, err := w.Withdraw(w.ctx, j.Key, listed)
	w.note("withdraw %s, listed %t: was %s, %v", j.Key, listed, got.Was, err)
	require.NoError(w.t, err)
	require.Equal(w.t, j.State, got.Was)
	require.True(w.t, !j.runs() || got.Withdrawn == (j.withdrawn || !j.cancelAsked))
	w.withdraw(j)
	if j.runs() && !j.cancelAsked {
		waits := j.Ahead && j.State == job.Leased
		j.cancelAsked, j.withdrawn, j.listed = true, true, listed && !waits
	}
}

func (w *walk) cancelWaiting() {
	var keys, want []string
	for range w.rand.IntN(3) {
		if j := w.anyJob(); j != nil {
			keys = append(keys, j.Key)
			if w.withdraw(j) || w.recall(j) {
				want = append(want, j.Key)
			}
		}
	}
	got, err := w.CancelWaiting(w.ctx, keys)
	w.note("cancel waiting %v: %v", keys, got)
	require.NoError(w.t, err)
	require.Equal(w.t, want, got)
}

func (w *walk) failWaiting() {
	j := w.anyJob()
	if j == nil {
		return
	}
	err := w.FailWaiting(w.ctx, j.Key, queue.Outcome{Entry: []byte(j.Key), Reason: "nobody can"})
	w.note("fail waiting %s: %v", j.Key, err)
	if j.State != job.Queued {
		require.ErrorIs(w.t, err, queue.ErrNotQueued)
		return
	}
	require.NoError(w.t, err)
	w.m.do(j, job.Fail)
	w.m.turns.returned(j)
	w.m.end(j, "nobody can")
}

func (w *walk) deleteHistory() {
	tenant, id := fmt.Sprint("t", w.rand.IntN(2)), fmt.Sprint("id", w.rand.IntN(12))
	require.NoError(w.t, w.DeleteHistory(w.ctx, tenant, []string{id}))
	w.note("delete history %s/%s", tenant, id)
	for _, key := range w.m.history {
		if j := w.m.jobs[key]; j.Tenant == tenant && j.ID == id {
			w.m.forget(key)
			return
		}
	}
}

func (w *walk) delivered() {
	j := w.anyJob(job.Done, job.Failed)
	if j == nil {
		return
	}
	// Its id may be another job's by now.
	if w.m.newest[[2]string{j.Tenant, j.ID}] == j.Key {
		w.note("delivered %s", j.Key)
		require.NoError(w.t, w.DeliveredEnds(w.ctx, queue.Confirmed{Tenant: j.Tenant, ID: j.ID}))
		w.m.ends = slices.DeleteFunc(w.m.ends, func(k string) bool { return k == j.Key })
	}
}

// where returns an instance and a hub, often those of a run that another one may wait behind.
func (w *walk) where() (instance, hub string) {
	instance, hub = fmt.Sprint("gpu", w.rand.IntN(4)), fmt.Sprint("hub", w.rand.IntN(2))
	if j := w.anyJob(job.Running); j != nil && w.rand.IntN(3) > 0 {
		return j.Run.Instance, j.Run.Hub
	}
	return instance, hub
}

// after now and then returns a run, which a claim releases if its instance is the one asked for.
func (w *walk) after() job.Run {
	if w.rand.IntN(3) > 0 {
		return job.Run{}
	}
	return w.anyRun()
}

// vacate does what a claim does with its instance's run. free says that the instance has no other
// run, and behind that the job may wait there.
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

// begin gives the instance to a run that waited behind another one, unless it was released.
func (m *model) begin(j *modelJob) {
	if !j.Ahead || j.State != job.Leased {
		return
	}
	if j.Ahead = false; !j.released {
		m.instances[j.Run.Instance] = j.Key
	}
}

// unused says that a run is given back as if it had never been given out. That is for runs waiting
// at an instance.
func (w *walk) unused(run job.Run) bool {
	j := w.m.held(run)
	return j != nil && j.Ahead && w.rand.IntN(2) == 0
}

// recall withdraws a job that is waiting at an instance: to its client it is still waiting.
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

// deliverAll delivers all events, and checks that each accepted job has reported that, then its
// runs and their progress, and, if it has ended, its end, once.
func (w *walk) deliverAll() {
	told, ids := map[string][]string{}, map[string]bool{}
	for taken := w.take(); len(taken) > 0; taken = w.take() {
		for _, e := range taken {
			key, _, _ := strings.Cut(e.ID, ".")
			told[key] = append(told[key], e.Name)
			require.False(w.t, ids[e.ID], "%s comes twice", e.ID)
			ids[e.ID] = true
			require.NoError(w.t, w.Delivered(w.ctx, e))
		}
	}
	for _, key := range w.calling {
		names := told[key]
		require.NotEmpty(w.t, names, key)
		require.Equal(w.t, queue.EventQueued, names[0], key)
		runs := names[1:]
		if j := w.m.jobs[key]; j == nil || j.State.Ended() { // the model only forgets what has ended
			require.NotEmpty(w.t, runs, "%s has ended", key)
			last := runs[len(runs)-1]
			require.Contains(w.t, []string{queue.EventDone, queue.EventFailed, queue.EventCancelled}, last, key)
			if j != nil {
				require.Equal(w.t, string(j.State), last, key)
			}
			require.Zero(w.t, must(w.db.Client().Exists(w.ctx, w.db.Key("q", "callback", key), w.db.Key("q", "callback_line", key)).Result()))
			runs = runs[:len(runs)-1]
		}
		require.False(w.t, slices.ContainsFunc(runs, func(name string) bool { return name != queue.EventStarted && name != queue.EventProgress }), "%s: %v", key, names)
	}
	open := must(w.db.Client().ZCard(w.ctx, w.db.Key("q", "callbacks_open")).Result())
	live, _, _, err := w.CountAll(w.ctx)
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, open, int64(live), "withdrawn runs are no longer live to their clients")
}

// steer changes one or more properties of a job at once.
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
	if w.rand.IntN(2) == 0 || j.stopped { // else few would be waiting
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
