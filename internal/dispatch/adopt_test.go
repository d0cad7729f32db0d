package dispatch

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// silentCatalog makes an instance take its time to say what it can run, until tell is called.
func silentCatalog(t *testing.T, i *scripted) (tell func()) {
	told := make(chan struct{})
	i.on("GET /object_info", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-told:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	var once atomic.Bool
	tell = func() {
		if once.CompareAndSwap(false, true) {
			close(told)
		}
	}
	t.Cleanup(tell)
	return tell
}

// A restarting hub follows its runs even while an instance has not said what it can run: with 500
// instances that takes minutes.
func TestRunIsAdoptedBeforeTheCatalogIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(working)
		b.runs(key)
		b.set(func(s *Settings) { s.ContactTimeout = 10 * time.Second }) // much less than the answer takes
		tell := silentCatalog(t, b.instances[0])
		b.restart("hub/2")
		require.Empty(t, b.reaches(key, job.Done).Lost)
		require.Equal(t, 1, b.instances[0].Started(), "it ran once")
		require.Empty(t, b.Instances.Open(), "it gets no job meanwhile")
		tell()
		b.reaches(b.submit(picture), job.Done)
	})
}

// The same holds for a hub that loses a socket and opens it again, and for messages on the new
// socket: they are read while the instance works out what it can run.
func TestRunGoesOnWhileTheCatalogIsReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		until := b.listen()
		key := b.submit(working)
		b.runs(key)
		silentCatalog(t, b.instances[0])
		b.instances[0].DropSockets()
		require.Equal(t, []string{"execution_start", "executed", "execution_success"}, until(key))
		require.Empty(t, b.reaches(key, job.Done).Lost)
	})
}

// agent reports an instance the way an agent does, until the test ends.
type agent struct {
	b    *dispatching
	i    *scripted
	boot int64
	seq  uint64
	// classes is the hash of the instance's object_info.
	classes string
}

// hire puts an agent beside a scripted instance that is not in the fleet yet.
func hire(b *dispatching, i *scripted) *agent {
	i.name = "gpu"
	b.instances = append(b.instances, i)
	return &agent{b: b, i: i, boot: time.Now().UnixMilli()}
}

func (a *agent) report(running string) {
	a.seq++
	r := fleet.InstanceReport{Name: a.i.name, URL: a.i.web.URL, Kind: fleet.KindComfyUI, Up: true, Boot: 1, Job: running, ObjectInfo: a.classes}
	if running != "" {
		r.Queue = 1
	}
	require.NoError(a.b.t, a.b.fleet.Apply(fleet.Report{Agent: "machine", Boot: a.boot, Seq: a.seq, Instances: []fleet.InstanceReport{r}}))
}

// reportedRun starts an endless run on an instance whose agent reports it.
func reportedRun(t *testing.T) (b *dispatching, a *agent, key string) {
	b = newDispatching(t, 0)
	a = hire(b, newScripted(t))
	a.report("")
	key = b.submit(endless)
	b.runs(key)
	a.report(key)
	return b, a, key
}

// A run whose instance this hub cannot reach is kept as long as the agent reports it, and is lost
// soon after the agent stops.
func TestReportedRunIsKept(t *testing.T) {
	inBubbles(t, map[string]bool{"followed": false, "adopted": true}, func(t *testing.T, restart bool) {
		b, a, key := reportedRun(t)
		b.set(func(s *Settings) { s.ContactTimeout = time.Second })
		var dials atomic.Int32
		b.instances[0].on("GET /ws", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			dials.Add(1)
			w.WriteHeader(http.StatusBadGateway)
		})
		fence := b.Job(key).Fence
		if restart {
			b.restart("hub/2")
			eventually(t, func() bool { return b.Runs.Get(key) != nil }, deadline, 10*time.Millisecond)
			fence = b.Job(key).Fence
		} else {
			b.instances[0].DropSockets()
		}
		began := time.Now()
		eventually(t, func() bool {
			a.report(key)
			return time.Since(began) > 3*time.Second && dials.Load() > 4
		}, deadline, 50*time.Millisecond)
		require.Empty(t, b.Job(key).Lost)
		require.Equal(t, fence, b.Job(key).Fence, "it is the same run")
		a.report("")
		require.NotEmpty(t, b.lost(key))
	})
}

// forgetsFleet ends the hub's process; the next one knows no instance until it is reported.
func (b *dispatching) forgetsFleet() {
	b.Dispatcher.Close()
	b.fleet = fleet.NewRegistry()
	b.config.Fleet = b.fleet
}

// A run whose instance nobody has reported yet waits longer: the agents of a restarted hub may take a
// minute to find it. Nor is it lost if the instance then takes its time to connect.
func TestRunWaitsForItsAgent(t *testing.T) {
	inBubbles(t, map[string]time.Duration{"it connects at once": 0, "it takes time to connect": 3 * time.Second}, func(t *testing.T, slow time.Duration) {
		b := newDispatching(t, 0)
		a := hire(b, newScripted(t))
		a.report("")
		key := b.submit(working)
		b.runs(key)
		b.set(func(s *Settings) { s.ContactTimeout = 5 * time.Second })
		b.forgetsFleet()
		connect := b.config.Connect
		b.config.Connect = func(i fleet.Instance) (*comfyui.Client, error) {
			<-time.After(slow)
			return connect(i)
		}
		b.restart("hub/2")
		eventually(t, func() bool { return b.Runs.Get(key) != nil }, deadline, 10*time.Millisecond)
		<-time.After(6 * time.Second)
		a.report("")
		require.Empty(t, b.reaches(key, job.Done).Lost)
		require.Equal(t, 1, a.i.Started(), "it ran once")
	})
}

// A cancel does not wait for an instance that the hub which has taken over the run cannot reach. Whatever is
// still running there is stopped once the instance is back.
func TestCancelWhileTheInstanceIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, a, key := reportedRun(t)
		away := make(chan struct{}, 100)
		a.i.on("GET /ws", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			away <- struct{}{}
			w.WriteHeader(http.StatusBadGateway)
		})
		b.restart("hub/2")
		eventually(t, func() bool { return b.Runs.Get(key) != nil }, deadline, 10*time.Millisecond)
		<-away
		must(b.Queue.Cancel(t.Context(), key))
		b.cancels(key)
		require.Equal(t, comfyui.TypeExecutionInterrupted, b.entry(key).End)

		a.i.on("GET /ws", nil)
		eventually(t, func() bool { return len(b.Instances.Open()) == 1 }, deadline, 10*time.Millisecond)
		a.report("")
		b.reaches(b.submit(picture), job.Done)
	})
}

// survivor starts another hub over the same queue, whose sweeps are 20 minutes apart: the only way
// it gets runs is from hubs that are gone.
func (b *dispatching) survivor(gone func(context.Context, string) bool) {
	b.config.Hub, b.config.HubID, b.config.Gone = "other/1", "other", gone
	b.Dispatcher = New(b.config)
	b.Start()
}

// among makes a hub tell others that it is alive.
func among(b *dispatching, c *Config) {
	b.settings.Lease = time.Hour
	c.Gone = func(context.Context, string) bool { return false }
}

// A hub that is only cut off from Redis keeps its runs until their leases end, and so does one
// whose instance nobody else can reach.
func TestRunOfASilentHubThatLives(t *testing.T) {
	inBubbles(t, map[string]bool{"it lives": false, "its instance is out of reach": true}, func(t *testing.T, gone bool) {
		b := newDispatching(t, 1, among)
		first := b.Dispatcher
		t.Cleanup(first.Close)
		key := b.submit(endless)
		b.runs(key)
		first.stop()
		if gone {
			b.fleet.RemoveStatic(b.instances[0].name)
		}
		var asked atomic.Int32
		b.survivor(func(context.Context, string) bool { asked.Add(1); return gone })
		eventually(t, func() bool { return asked.Load() >= 3 }, deadline, 10*time.Millisecond)
		require.Equal(t, "hub/1", b.Job(key).Run.Hub)
		require.Nil(t, b.Runs.Get(key))
	})
}

// A hub that was frozen finds out at once that another has its runs, and leaves them alone.
func TestFrozenHubLosesItsRuns(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1, among)
	key := b.submit(endless)
	b.runs(key)
	eventually(t, func() bool {
		_, _, err := b.Queue.Beat(t.Context(), "other/1", time.Hour)
		require.NoError(t, err)
		_, _, err = b.Queue.Beat(t.Context(), "hub/1", time.Millisecond) // as if it had been silent since
		require.NoError(t, err)
		_, err = b.Queue.Inherit(t.Context(), b.Job(key).Run, "other/1")
		return err == nil
	}, deadline, 2*time.Millisecond)
	b.leaves(key)
	j := b.Job(key)
	require.Equal(t, job.Running, j.State)
	require.Equal(t, "other/1", j.Run.Hub)
	require.Empty(t, j.Lost)
	require.Equal(t, 1, b.instances[0].Started())
	must(b.Queue.Cancel(t.Context(), key))
}
