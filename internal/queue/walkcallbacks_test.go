package queue_test

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// deliverAll delivers all events, and checks that each job that was accepted has told of
// that, then of its runs and their progress, and of its end once, if it has ended.
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
		if j := w.m.jobs[key]; j == nil || j.State.Ended() { // the model forgets what has ended only
			require.NotEmpty(w.t, runs, "%s has ended", key)
			last := runs[len(runs)-1]
			require.Contains(w.t, []string{queue.EventDone, queue.EventFailed, queue.EventCancelled}, last, key)
			if j != nil {
				require.Equal(w.t, string(j.State), last, key)
			}
			runs = runs[:len(runs)-1]
		}
		require.False(w.t, slices.ContainsFunc(runs, func(name string) bool { return name != queue.EventStarted && name != queue.EventProgress }), "%s: %v", key, names)
	}
	open := must(w.db.Client().ZCard(w.ctx, w.db.Key("q", "callbacks_open")).Result())
	live, _, _, err := w.CountAll(w.ctx)
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, open, int64(live), "withdrawn runs are no longer live to their clients")
}
