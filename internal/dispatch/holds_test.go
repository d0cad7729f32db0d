package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// learnLoading makes the hub believe how long a graph runs and how long its models take to load.
func (b *dispatching) learnLoading(graph string, ran, load time.Duration) {
	b.t.Helper()
	s, ok := schedule.DecodeStructure(shapeOf(b.t, b, graph))
	require.True(b.t, ok)
	p := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: b.reports.Gpu(b.instances[0].name)}
	for range 6 {
		b.durations.add(p, schedule.Sample{Work: s.Work, Ran: ran})
		b.durations.add(p, schedule.Sample{Work: s.Work, Ran: ran + load, Cold: true})
	}
}

// newWarm has two instances: one is running a job with the model a, the other has b loaded.
func newWarm(t *testing.T, load time.Duration) (b *dispatching, running, warm string) {
	t.Helper()
	b = newDispatching(t, 2, func(b *dispatching, _ *Config) { b.settings.Overtaking = 10 * time.Second })
	b.haveModels()
	for _, model := range []string{"a.safetensors", "b.safetensors"} {
		key := b.submit(picture, withModel(model))
		b.reaches(key, job.Done)
		b.leaves(key)
	}
	b.learnLoading(endless, 100*time.Millisecond, load)
	running = b.submit(endless, withModel("a.safetensors"), withShape(shapeOf(t, b, endless)))
	b.runs(running)
	return b, running, b.Job(running).Run.Instance
}

// A job waits for the instance that has its models loaded although another is idle, says so, and is
// not stuck; it runs as soon as that instance is free.
func TestJobWaitsForLoadedModels(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running, warm := newWarm(t, time.Hour)
		second := b.submit(endless, withModel("a.safetensors"), withShape(shapeOf(t, b, endless)))
		eventually(t, func() bool { return b.Forecasts.WaitsFor(second) == warm }, deadline, 10*time.Millisecond)
		require.Equal(t, job.Queued, b.Job(second).State)
		require.Empty(t, must(b.Watchdog.besideIdle(t.Context(), 0)))
		idle := 0
		for _, c := range b.Forecasts.From(t.Context(), b.Job(second)).Candidates(b.Job(second), catalog.Requirements{Classes: []string{"EmptyImage"}}) {
			if c.Why == "it is idle, but must load the models first; "+warm+" has them" {
				idle++
			}
		}
		require.Equal(t, 1, idle)

		other := b.submit(picture, withModel("b.safetensors")) // the idle one is not kept for anybody
		require.NotEqual(t, warm, b.reaches(other, job.Done).Run.Instance)
		require.Equal(t, job.Queued, b.Job(second).State)

		b.Runs.Cancel(running)
		b.reaches(running, job.Cancelled)
		b.runs(second)
		require.Equal(t, warm, b.Job(second).Run.Instance)
		require.Empty(t, b.Forecasts.WaitsFor(second))
		b.Runs.Cancel(second)
		b.reaches(second, job.Cancelled)
	})
}

// A job waits for a busy instance no longer than its models take to load.
func TestWaitForLoadedModelsIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running, warm := newWarm(t, 500*time.Millisecond)
		second := b.submit(endless, withModel("a.safetensors"), withShape(shapeOf(t, b, endless)))
		b.runs(second) // the first one goes on for ever, longer than expected
		require.NotEqual(t, warm, b.Job(second).Run.Instance)
		for _, key := range []string{running, second} {
			b.Runs.Cancel(key)
			b.reaches(key, job.Cancelled)
		}
	})
}

// A hub knows when an instance will be free that is running another hub's job.
func TestInstanceOfAnotherHubIsFreeSoon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.haveModels()
		b.learnLoading(endless, time.Hour, time.Minute)
		key := b.submit(picture, withModel("a.safetensors")) // makes the class known
		j := b.reaches(key, job.Done)
		b.leaves(key)
		name, url := b.instances[0].name, b.instances[0].web.URL
		b.fleet.Observe(fleet.InstanceReport{Name: name, URL: url, Direct: true, Kind: fleet.KindComfyUI, Up: true, Boot: 1, Queue: 1, Job: "theirs"})
		require.Empty(t, b.placer.soon())
		b.listener.heard(queue.Event{Kind: queue.Claimed, Key: "theirs", Instance: name, Hub: "other/1", Class: j.Class, Shape: shapeOf(t, b, endless)})
		eventually(t, func() bool { return len(b.placer.soon()) == 1 }, deadline, 10*time.Millisecond)
		require.InDelta(t, time.Hour, b.placer.soon()[0].Free, float64(time.Minute))
		require.Equal(t, []string{"a.safetensors"}, b.placer.soon()[0].Loaded)
		b.listener.heard(queue.Event{Kind: queue.Claimed, Key: "another", Instance: name, Hub: "other/1", Class: j.Class})
		require.Empty(t, b.placer.soon())
	})
}
