package queue_test

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

func (w *walk) cancel() {
	j := w.anyJob()
	if j == nil {
		_, err := w.Cancel(w.ctx, "unknown")
		require.ErrorIs(w.t, err, queue.ErrNotFound)
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
		_, err := w.Withdraw(w.ctx, "unknown")
		require.ErrorIs(w.t, err, queue.ErrNotFound)
		return
	}
	got, err := w.Withdraw(w.ctx, j.Key)
	w.note("withdraw %s: was %s, %v", j.Key, got.Was, err)
	require.NoError(w.t, err)
	require.Equal(w.t, j.State, got.Was)
	w.withdraw(j)
	if j.runs() && !j.cancelAsked {
		j.cancelAsked, j.withdrawn = true, true
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
