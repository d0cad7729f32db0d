package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// openTo makes a dispatcher with an open connection to each of some idle instances.
func openTo(t *testing.T, instances int) (*Dispatcher, []*instance.Link) {
	t.Helper()
	registry := fleet.NewRegistry()
	d := New(Config{Fleet: registry, Connected: &comfyui.Clients{}, Logger: slog.New(slog.DiscardHandler), Settings: func() Settings { return Settings{} }})
	var conns []*instance.Link
	for n := range instances {
		url := fmt.Sprintf("http://127.0.0.1:%d", 10000+n)
		name := must(registry.AddStatic(url))
		registry.Observe(fleet.InstanceReport{Name: name, URL: url, Up: true})
		conn := instance.NewLink(must(known(registry, name)), registry, &d.Instances.Sets, d.Logger)
		d.Instances.Put(name, conn)
		conn.SetInfo(&catalog.Info{})
		conn.SetOpen()
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
func linkTo(name string, registry *fleet.Registry) *instance.Link {
	return instance.NewLink(fleet.Instance{Name: name}, registry, &instance.FreeSets{}, slog.New(slog.DiscardHandler))
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
		check := func(want ...*instance.Link) {
			t.Helper()
			var its []string
			for _, conn := range want {
				its = append(its, conn.Name)
			}
			idle, infos := d.Openings.idle()
			require.Equal(t, its, names(idle))
			require.Len(t, infos, len(want))
		}
		check(conns...)
		r := &run{claim: claim{own: job.Job{ID: "one"}}}
		require.True(t, conns[1].Attach(r.holder()))
		check(conns[0], conns[2])
		conns[0].SetDown()
		check(conns[2])
		require.True(t, conns[1].Detach(r.holder()))
		check(conns[1], conns[2])
		conns[0].SetOpen()
		check(conns...)
		d.Fleet.SetDraining(conns[2].Name, true)
		check(conns[0], conns[1])
		d.Fleet.SetDraining(conns[2].Name, false)
		d.Instances.Put(conns[2].Name, nil)
		check(conns[0], conns[1])
		conns[1].SetInfo(nil)
		check(conns[0])
	})
}

// slowRun does not say what its job is until done is closed.
type slowRun struct {
	*holder
	asked, done chan struct{}
}

func (r *slowRun) Job() job.Job {
	close(r.asked)
	<-r.done
	return r.holder.Job()
}

// TestLookSparesBusyInstances holds the locks of all busy connections: a look for idle instances
// that asks one of them would never end.
func TestLookSparesBusyInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, conns := openTo(t, 100)
		done := make(chan struct{})
		defer close(done)
		for n, conn := range conns[1:] {
			r := &slowRun{holder: &holder{claim: claim{own: job.Job{ID: fmt.Sprint(n)}}}, asked: make(chan struct{}), done: done}
			require.True(t, conn.Attach(r))
			go conn.Detach(r) // asks the run with the lock held
			<-r.asked
		}
		found := make(chan []schedule.Idle, 1)
		go func() {
			idle, _ := d.Openings.idle()
			found <- idle
		}()
		select {
		case idle := <-found:
			require.Equal(t, []string{conns[0].Name}, names(idle))
		case <-time.After(deadline):
			t.Fatal("it asks busy instances")
		}
	})
}
