package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// while keeps doing some work until done returns.
func while(work func(), done func()) {
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				work()
			}
		}
	})
	done()
	close(stop)
	busy.Wait()
}

// A lease is renewed and taken back while its run goes on. Each step of the run must see a complete
// lease. It is the race detector that fails this test.
func TestLeaseChangesDuringARun(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	b.instances[0].on("POST /prompt", refuse) // the longest path: refused, then reported as a run
	for _, state := range []job.State{job.Failed, job.Done} {
		key := b.submit(picture)
		while(func() {
			if r := b.Runs.Get(key); r != nil {
				b.leases.Adopt(t.Context(), queue.Orphan{Run: r.Lease()}, run.Expired)
			}
		}, func() { b.reaches(key, state) })
		b.instances[0].on("POST /prompt", nil)
	}
}

// The owner of the job that an instance is running can be asked for at any time, even while the
// instance is being given the job.
func TestWhoseJobRunsIsAskedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	while(func() {
		b.Affinity.Running(job.DefaultTenant, "client")
		b.Affinity.WarmFor(job.DefaultTenant, "client")
	}, func() {
		for range 3 {
			b.reaches(b.submit(picture), job.Done)
		}
	})
	require.Len(t, b.Affinity.WarmFor(job.DefaultTenant, "client"), 1)
	require.Empty(t, b.Affinity.WarmFor(job.DefaultTenant, "other"))
}

// An instance is left to the hub that gave it the last run, but only for a moment, even if that hub
// never says that the run has ended.
func TestFirstTurn(t *testing.T) {
	inBubbles(t, map[string]bool{"told": true, "not told": false}, func(t *testing.T, told bool) {
		b := newDispatching(t, 1)
		b.connects(1)
		conn := b.Instances.Get(b.instances[0].name)
		theirs := queue.Event{Kind: queue.Claimed, Key: "theirs", Instance: conn.Name, Hub: "other/1"}
		isLeft := func(turn time.Duration) {
			began := time.Now()
			b.listener.heard(theirs)
			if left := b.Openings.isLeft(conn); time.Since(began) < turn { // else the turn may be over
				require.True(t, left)
			}
		}
		isLeft(500 * time.Millisecond)
		if theirs.Kind = queue.Freed; told {
			isLeft(150 * time.Millisecond)
		}
		key := b.submit(picture)
		b.reaches(key, job.Done)
		require.False(t, b.Openings.isLeft(conn), "it is this hub's turn now")
		b.leaves(key)

		b.listener.heard(theirs) // late
		require.False(t, b.Openings.isLeft(conn))
	})
}

// openTo makes a dispatcher with an open connection to each of some idle instances.
func openTo(instances int) (*Dispatcher, []*instance.Link) {
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
func names(idle []schedule.Idle) (list []string) {
	for _, i := range idle {
		list = append(list, i.Name)
	}
	return list
}

// TestFreeSet compares the set with what the connections say.
func TestFreeSet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, conns := openTo(3)
		check := func(want ...*instance.Link) {
			var its []string
			for _, conn := range want {
				its = append(its, conn.Name)
			}
			idle, infos := d.Openings.Idle()
			require.Equal(t, its, names(idle))
			require.Len(t, infos, len(want))
		}
		check(conns...)
		r := d.runner.New(nil, job.Job{ID: "one"})
		require.True(t, conns[1].Attach(r.Holder()))
		check(conns[0], conns[2])
		conns[0].SetDown()
		check(conns[2])
		require.True(t, conns[1].Detach(r.Holder()))
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
	instance.Holder
	asked, done chan struct{}
}

func (r *slowRun) Job() job.Job {
	close(r.asked)
	<-r.done
	return r.Holder.Job()
}

// TestLookSparesBusyInstances holds the locks of all busy connections: a look for idle instances
// that asks one of them would never end.
func TestLookSparesBusyInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, conns := openTo(100)
		done := make(chan struct{})
		defer close(done)
		for n, conn := range conns[1:] {
			r := &slowRun{Holder: d.runner.New(nil, job.Job{ID: fmt.Sprint(n)}).Holder(), asked: make(chan struct{}), done: done}
			require.True(t, conn.Attach(r))
			go conn.Detach(r) // asks the run with the lock held
			<-r.asked
		}
		found := make(chan []schedule.Idle, 1)
		go func() { idle, _ := d.Openings.Idle(); found <- idle }()
		select {
		case idle := <-found:
			require.Equal(t, []string{conns[0].Name}, names(idle))
		case <-time.After(deadline):
			t.Fatal("it asks busy instances")
		}
	})
}
