package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// shapeOf returns the shape of a graph, and withShape submits one.
func shapeOf(b *dispatching, graph string) string {
	v := must(pyjson.Parse([]byte(graph)))
	return schedule.Shape(v)
}

func withShape(shape string) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Shape = shape }
}

// learn makes the hub believe that a graph ran for some time.
func (b *dispatching) learn(graph string, took time.Duration) {
	s, ok := schedule.DecodeStructure(shapeOf(b, graph))
	require.True(b.t, ok)
	gpu := b.reports.Gpu(b.instances[0].name)
	b.durations.Add(schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: gpu}, schedule.Sample{Work: s.Work, Ran: took})
}

// A job whose structure took much less time so far runs before one that has waited longer.
func TestShortJobRunsFirst(t *testing.T) {
	beside.Cases(t, map[string]time.Duration{"short first": time.Hour, "as they come": 0}, func(t *testing.T, bound time.Duration) {
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.ShortFirst = bound })
		own := func(s *queue.Submission) { s.Client, s.Caller = s.Key, s.Key } // a client of its own
		b.learn(endless, 2*time.Minute)
		b.learn(picture, 4*time.Second)
		first := b.submit(endless, withShape(shapeOf(b, endless)), own)
		b.runs(first)
		long := b.submit(endless, withShape(shapeOf(b, endless)), own)
		short := b.submit(picture, withShape(shapeOf(b, picture)), own)
		eventually(t, func() bool { return len(b.line.first()) == 2 }, deadline, 10*time.Millisecond)
		b.Runs.Cancel(first)
		if bound > 0 {
			b.reaches(short, job.Done)
			b.runs(long)
			require.Greater(t, b.Job(long).StartedAt, b.Job(short).StartedAt)
			require.Contains(t, b.logged(), `why="takes less time than others before it"`)
		} else {
			b.runs(long)
			require.Equal(t, job.Queued, b.Job(short).State)
		}
		b.cancels(long)
		b.reaches(short, job.Done)
	})
}

// learnLoading makes the hub believe how long a graph runs and how long its models take to load.
func (b *dispatching) learnLoading(graph string, ran, load time.Duration) {
	s, ok := schedule.DecodeStructure(shapeOf(b, graph))
	require.True(b.t, ok)
	p := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: b.reports.Gpu(b.instances[0].name)}
	for range 6 {
		b.durations.Add(p, schedule.Sample{Work: s.Work, Ran: ran})
		b.durations.Add(p, schedule.Sample{Work: s.Work, Ran: ran + load, Cold: true})
	}
}

// newWarm has two instances: one is running a job with the model a, the other has b loaded.
func newWarm(t *testing.T, load time.Duration) (b *dispatching, running, warm string) {
	b = newDispatching(t, 2, func(b *dispatching, _ *Config) { b.settings.Overtaking = 10 * time.Second })
	b.haveModels()
	for _, model := range []string{"a.safetensors", "b.safetensors"} {
		key := b.submit(picture, withModel(model))
		b.reaches(key, job.Done)
		b.leaves(key)
	}
	b.learnLoading(endless, 100*time.Millisecond, load)
	running = b.submit(endless, withModel("a.safetensors"), withShape(shapeOf(b, endless)))
	b.runs(running)
	return b, running, b.Job(running).Run.Instance
}

// A job waits for the instance that has its models loaded although another is idle, says so, and is
// not stuck; it runs as soon as that instance is free.
func TestJobWaitsForLoadedModels(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running, warm := newWarm(t, time.Hour)
		second := b.submit(endless, withModel("a.safetensors"), withShape(shapeOf(b, endless)))
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

		b.cancels(running)
		b.runs(second)
		require.Equal(t, warm, b.Job(second).Run.Instance)
		require.Empty(t, b.Forecasts.WaitsFor(second))
		b.cancels(second)
	})
}

// A job waits for a busy instance no longer than its models take to load.
func TestWaitForLoadedModelsIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, running, warm := newWarm(t, 500*time.Millisecond)
		second := b.submit(endless, withModel("a.safetensors"), withShape(shapeOf(b, endless)))
		b.runs(second) // the first one goes on for ever, longer than expected
		require.NotEqual(t, warm, b.Job(second).Run.Instance)
		for _, key := range []string{running, second} {
			b.cancels(key)
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
		b.listener.heard(queue.Event{Kind: queue.Claimed, Key: "theirs", Instance: name, Hub: "other/1", Class: j.Class, Shape: shapeOf(b, endless)})
		eventually(t, func() bool { return len(b.placer.soon()) == 1 }, deadline, 10*time.Millisecond)
		require.InDelta(t, time.Hour, b.placer.soon()[0].Free, float64(time.Minute))
		require.Equal(t, []string{"a.safetensors"}, b.placer.soon()[0].Loaded)
		b.listener.heard(queue.Event{Kind: queue.Claimed, Key: "another", Instance: name, Hub: "other/1", Class: j.Class})
		require.Empty(t, b.placer.soon())
	})
}

// withModel submits a job that loads a model, for a client of its own.
func withModel(model string) func(*queue.Submission) {
	return func(s *queue.Submission) {
		r := catalog.Requirements{Classes: []string{"EmptyImage"}, Choices: []catalog.Choice{{Class: "Loader", Input: "name", Value: model}}}
		s.Class, s.Body.Requires = r.Signature(), r.Encode()
		s.Client, s.Caller = s.Key, s.Key
	}
}

// haveModels gives the models a.safetensors and b.safetensors to all instances.
func (b *dispatching) haveModels() {
	info := must(catalog.Parse([]byte(`{"EmptyImage": {"input": {"required": {}}}, "SaveImage": {"input": {"required": {}}},
		"Loader": {"input": {"required": {"name": [["a.safetensors", "b.safetensors"]]}}}}`)))
	b.connects(len(b.instances))
	for _, conn := range b.Instances.Open() {
		conn.SetInfo(info)
	}
}

// What an instance has loaded is known from what ran there, and unknown once it was told to unload
// or its connection was lost.
func TestWarmInstanceIsPreferred(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		b.haveModels()
		where := func(model string) string {
			key := b.submit(picture, withModel(model))
			instance := b.reaches(key, job.Done).Run.Instance
			b.leaves(key)
			return instance
		}
		a := where("a.safetensors")
		other := where("b.safetensors")
		require.NotEqual(t, a, other, "an empty instance is used before models are dropped")
		for range 3 {
			require.Equal(t, other, where("b.safetensors"))
			require.Equal(t, a, where("a.safetensors"))
		}
		require.Contains(t, b.logged(), `why="its models are loaded"`)

		for _, client := range b.Instances.Clients() {
			b.Instances.Unloaded(client)
		}
		for _, conn := range b.Instances.Open() {
			i, _, ok := conn.Idle()
			require.True(t, ok)
			require.Empty(t, i.Loaded)
		}
	})
}

func TestKeptGPUs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var k keptGPUs
		now := time.Now()
		g, other := &schedule.GPU{Name: "g"}, &schedule.GPU{Name: "other"}
		idle := []schedule.Idle{{GPU: g}, {GPU: other}, {}}
		k.add(nil, idle, now)
		require.False(t, g.Kept)
		k.add([]string{"g"}, idle, now)
		require.True(t, g.Kept)
		require.Contains(t, g.Why(), "kept free")
		require.False(t, other.Kept)
		k.mark(g, now.Add(keptFor))
		require.False(t, g.Kept, "nobody has looked since")
		require.Contains(t, g.Why(), "too little memory")
		k.add([]string{"other"}, idle, now.Add(2*keptFor))
		require.Len(t, k.until, 1)
	})
}

func TestGPUName(t *testing.T) {
	t.Parallel()
	said := map[string]string{"said": "left"}
	of := func(agent, device string) string {
		return instance.GPUName(said, fleet.Instance{Agent: agent, Report: fleet.InstanceReport{Device: device}})
	}
	require.Equal(t, "/left", instance.GPUName(said, fleet.Instance{Name: "said"}))
	require.Empty(t, of("box", ""))
	require.Equal(t, of("box", "0"), of("box", "0"))
	require.NotEqual(t, of("box", "0"), of("thief", "0"), "a machine names its own GPUs alone")
	require.Equal(t, of("box", "GPU-1"), of("sidecar", "GPU-1"))
}
