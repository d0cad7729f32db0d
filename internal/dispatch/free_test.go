package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// openTo makes a dispatcher with an open connection to each of some idle instances.
func openTo(t *testing.T, instances int) (*Dispatcher, []*connection) {
	t.Helper()
	registry := fleet.NewRegistry()
	d := New(Config{Fleet: registry, Connected: &comfyui.Clients{}, Logger: slog.New(slog.DiscardHandler), Settings: func() Settings { return Settings{} }})
	var conns []*connection
	for n := range instances {
		url := fmt.Sprintf("http://127.0.0.1:%d", 10000+n)
		name := must(registry.AddStatic(url))
		registry.Observe(fleet.InstanceReport{Name: name, URL: url, Up: true})
		conn := newConnection(must(known(registry, name)), registry, &d.Instances.sets, d.Logger)
		d.Instances.byName[name] = conn
		conn.setInfo(&catalog.Info{})
		conn.setOpen()
		conns = append(conns, conn)
	}
	return d, conns
}

func known(registry *fleet.Registry, name string) (fleet.Instance, error) {
	i, known := registry.Instance(name)
	if !known {
		return i, errors.New("there is none")
	}
	return i, nil
}

// linkTo makes a link that has no socket.
func linkTo(name string, registry *fleet.Registry) *connection {
	return newConnection(fleet.Instance{Name: name}, registry, &freeSets{}, slog.New(slog.DiscardHandler))
}

func names(idle []schedule.Idle) (list []string) {
	for _, i := range idle {
		list = append(list, i.Name)
	}
	return list
}

// TestFreeSet compares the set with what the connections say.
func TestFreeSet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, conns := openTo(t, 3)
		check := func(want ...*connection) {
			t.Helper()
			var its []string
			for _, conn := range want {
				its = append(its, conn.name)
			}
			idle, infos := d.Openings.idle()
			require.Equal(t, its, names(idle))
			require.Len(t, infos, len(want))
		}
		check(conns...)
		r := &run{claim: claim{own: job.Job{ID: "one"}}}
		require.True(t, conns[1].attach(r))
		check(conns[0], conns[2])
		conns[0].setDown()
		check(conns[2])
		require.True(t, conns[1].detach(r))
		check(conns[1], conns[2])
		conns[0].setOpen()
		check(conns...)
		d.Fleet.SetDraining(conns[2].name, true)
		check(conns[0], conns[1])
		d.Fleet.SetDraining(conns[2].name, false)
		delete(d.Instances.byName, conns[2].name)
		check(conns[0], conns[1])
		conns[1].setInfo(nil)
		check(conns[0])
	})
}

// TestLookSparesBusyInstances holds the locks of all busy connections: a look for idle instances
// that asks one of them would never end.
func TestLookSparesBusyInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, conns := openTo(t, 100)
		for n, conn := range conns[1:] {
			require.True(t, conn.attach(&run{claim: claim{own: job.Job{ID: fmt.Sprint(n)}}}))
			conn.slot.mu.Lock()
		}
		found := make(chan []schedule.Idle, 1)
		go func() {
			idle, _ := d.Openings.idle()
			found <- idle
		}()
		select {
		case idle := <-found:
			require.Equal(t, []string{conns[0].name}, names(idle))
		case <-time.After(deadline):
			t.Fatal("it asks busy instances")
		}
	})
}

// TestReconcilesOnlyWhatChanged shows that after a change at one instance the dispatcher looks at
// no other: it would open a connection to the second.
func TestReconcilesOnlyWhatChanged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		registry := fleet.NewRegistry()
		var asked []string
		d := New(Config{
			Fleet: registry, Connected: &comfyui.Clients{}, Logger: slog.New(slog.DiscardHandler),
			Connect: func(i fleet.Instance) (*comfyui.Client, error) {
				asked = append(asked, i.Name)
				return nil, errors.New("none")
			},
		})
		changes := registry.Subscribe()
		defer changes.Close()
		one := must(registry.AddStatic("http://127.0.0.1:10001"))
		two := must(registry.AddStatic("http://127.0.0.1:10002"))
		d.linker.reconcile(context.Background(), changes.Take())
		require.ElementsMatch(t, []string{one, two}, asked)
		asked = nil
		registry.SetSick(two, "a run hangs")
		d.linker.reconcile(context.Background(), changes.Take())
		require.Equal(t, []string{two}, asked)
	})
}

func TestUsable(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, conns := openTo(t, 1)
		conn := conns[0]
		busy := func(queue int, job string, fence int64) fleet.Instance {
			return fleet.Instance{State: fleet.Busy, Report: fleet.InstanceReport{Up: true, Queue: queue, Job: job, Fence: fence}}
		}
		require.True(t, conn.usable(fleet.Instance{State: fleet.Idle}))
		require.False(t, conn.usable(busy(1, "", 0)), "nothing has run here")
		conn.ended(job.Run{Key: "last", Fence: 7})
		for _, c := range []struct {
			what     string
			instance fleet.Instance
			want     bool
		}{
			{"idle", fleet.Instance{State: fleet.Idle}, true},
			{"sick", fleet.Instance{State: fleet.Sick, Report: fleet.InstanceReport{Job: "last", Queue: 1, Fence: 7}}, false},
			{"the run that has ended", busy(1, "last", 7), true},
			{"and another one behind it", busy(2, "last", 7), false},
			{"a run before it", busy(1, "before", 6), true},
			{"with that run behind it", busy(2, "before", 6), true},
			{"a later run of another hub", busy(1, "other", 8), false},
			{"nobody knows whose", busy(1, "", 0), false},
		} {
			require.Equal(t, c.want, conn.usable(c.instance), c.what)
		}
	})
}
