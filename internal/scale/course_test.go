package scale

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No machine is started in place of those that a spent budget ends.
func TestSpentBudgetStartsNothing(t *testing.T) {
	const now = 1_000_000
	rec := decode("")
	rec.Told, rec.Spent, rec.Counted = 2, 5, now
	view := View{Waiting: []time.Duration{time.Minute, time.Minute, time.Minute}}
	for _, name := range []string{"gpu-1", "gpu-2"} {
		rec.Machines[name] = machine{Seen: now}
		view.Instances = append(view.Instances, Instance{Name: name, Works: true, Busy: true, Left: time.Minute})
	}
	class := Class{Name: "gpu", Instances: []string{"gpu-*"}, Max: 4, IdleAfter: time.Minute, Price: 60, Budget: 5}
	c := &course{class: class, now: now, rec: &rec, view: view, watch: newWatch(now, time.Minute)}
	c.plan()
	require.Equal(t, []string{"gpu-1", "gpu-2"}, c.drain)
	require.Equal(t, 2, rec.Wanted)
	require.Nil(t, rec.Change)
}

// A program that walks the lists of a change finds lists.
func TestFirstChangeHasLists(t *testing.T) {
	const now = 1_000_000
	rec := decode("")
	c := &course{class: Class{Name: "gpu", Max: 4}, now: now, rec: &rec, view: View{Waiting: []time.Duration{time.Minute}}, watch: newWatch(now, time.Minute)}
	c.plan()
	text, err := json.Marshal(rec.Change)
	require.NoError(t, err)
	require.Contains(t, string(text), `"remove":[],"keep":[]`)
}
