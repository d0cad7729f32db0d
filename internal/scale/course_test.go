package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
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

// A provider that replaces a machine, as one does whose spot machine is reclaimed, is not told to have one
// more: the machine that is away is counted for a while, but not beside the one in its place.
func TestReplacedMachineIsNotCountedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		told, asked int
		there, away []string
		wanted      int
		later       int // once it has been away for so long that another one is started in its place
	}{
		"replaced":                 {told: 2, there: []string{"a", "c"}, away: []string{"b"}, wanted: 2, later: 2},
		"all are replaced":         {told: 2, there: []string{"c", "d"}, away: []string{"a", "b"}, wanted: 2, later: 2},
		"not replaced":             {told: 2, there: []string{"a"}, away: []string{"b"}, wanted: 2, later: 3},
		"replaced beside a start":  {told: 3, asked: 1, there: []string{"a", "c"}, away: []string{"b"}, wanted: 3, later: 3},
		"nobody knows what it has": {told: -1, there: []string{"a"}, away: []string{"b"}, wanted: 2, later: 2},
	} {
		for away, wanted := range map[time.Duration]int{10 * time.Second: c.wanted, 3 * time.Minute: c.later} {
			const now = 100_000_000
			rec := decode("")
			rec.Told, rec.Counted = c.told, now
			view, watch := View{}, newWatch(now-time.Hour.Milliseconds(), time.Hour)
			for range c.asked {
				rec.Asked = append(rec.Asked, now)
			}
			for _, machineName := range c.there {
				rec.Machines[machineName] = machine{Seen: now}
				view.Instances = append(view.Instances, Instance{Name: machineName, Works: true, Busy: true, Left: time.Hour, Needed: true})
			}
			for _, machineName := range c.away {
				rec.Machines[machineName] = machine{Seen: now - away.Milliseconds()}
			}
			class := Class{Name: "gpu", Instances: []string{"*"}, Min: c.told, Max: 6, IdleAfter: time.Hour}
			(&course{class: class, now: now, rec: &rec, view: view, watch: watch}).plan()
			require.Equal(t, wanted, rec.Wanted, "%s, away for %s", name, away)
		}
	}
}

// A class that is taken out of the Caddyfile and comes back the same day has spent what it has spent.
func TestClassThatComesBackHasSpent(t *testing.T) {
	rec := decode("")
	rec.Day, rec.Spent, rec.Machines = 7, 4.5, map[string]machine{"a": {Seen: 1}}
	back := decode(rec.spentOn(7))
	require.Equal(t, record{Told: -1, Day: 7, Spent: 4.5, Machines: map[string]machine{}}, back)
	require.Equal(t, rec.spentOn(7), back.spentOn(7), "it is stored once")
	require.Empty(t, rec.spentOn(8))
	rec.Spent = 0
	require.Empty(t, rec.spentOn(7))
}

// A machine that was to be removed by a call without an answer is not taken back: the provider may
// come to it yet. An answer, even a refusal, says that it will not.
func TestMachineThatMayBeRemovedIsNotTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		taken bool
	}{
		"too late":         {fmt.Errorf("the webhook failed: %w", context.DeadlineExceeded), false},
		"reset":            {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		"ended":            {io.EOF, false},
		"nobody there":     {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"dial too late":    {&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, true},
		"refused in words": {errors.New("the webhook answered with 500"), true},
	} {
		const now = 100_000_000
		rec := decode("")
		rec.Machines = map[string]machine{"a": {Seen: now, Drained: now - 1}}
		rec.Change = &Change{Remove: []string{"a"}}
		rec.failed(now, c.err)
		view := View{Instances: []Instance{{Name: "a", Works: true, Stopped: true}}, Waiting: []time.Duration{time.Second}}
		plan := func() []string {
			again := &course{class: Class{Name: "gpu", Instances: []string{"*"}, Max: 1, IdleAfter: time.Minute}, now: now, rec: &rec, view: view, watch: newWatch(now, time.Minute)}
			again.plan()
			return again.undrain
		}
		require.Equal(t, c.taken, slices.Equal([]string{"a"}, plan()), name)
		if !c.taken {
			rec.Retry = 0
			plan()
			require.Equal(t, []string{"a"}, rec.Change.Remove, "%s: it is told again", name)
			rec.Change.Remove = nil
			rec.done(now)
			require.Equal(t, []string{"a"}, plan(), "%s: a later call was answered", name)
		}
	}
}
