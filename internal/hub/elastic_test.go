package hub_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/scale/demand"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// rented is a provider whose machines are instances without an agent.
type rented struct {
	b  *bench
	mu sync.Mutex
	// machines are those that are there.
	machines []*instance
	changes  []scale.Change
}

// Set implements scale.Provider.
func (p *rented) Set(_ context.Context, c scale.Change) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(p.changes, c)
	p.machines = slices.DeleteFunc(p.machines, func(i *instance) bool {
		gone := slices.Contains(c.Remove, i.addr)
		if gone {
			i.die()
		}
		return gone
	})
	for len(p.machines) < c.Wanted {
		p.machines = append(p.machines, newInstance(p.b.t, sim.Config{TimeScale: 1}))
	}
	settings := p.b.settings
	settings.Instances = nil
	for _, i := range p.machines {
		settings.Instances = append(settings.Instances, i.url())
	}
	return p.b.hub.Start(p.b.t.Context(), settings)
}

func (p *rented) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.machines)
}

// Prompts that nobody is there for start machines; these run them, and go once they have nothing to
// do. Operators see it, and nobody else does.
func TestElasticFleet(t *testing.T) {
	cloud := &rented{}
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, func(b *bench) {
			cloud.b = b
			b.settings.Operators = []string{"root"}
			b.settings.Scale = []scale.Class{{Name: "gpu", Instances: []string{"*"}, Max: 3, IdleAfter: time.Minute, Price: 2, Budget: 10, Provider: cloud}}
		}, onRunPod(&overflowtest.Endpoint{}, func(o *config.Overflow) { o.After = 24 * time.Hour })) // its slots are no machines
		require.Equal(t, http.StatusForbidden, statusOf(b.as("ann", "GET", "/hub/scale", "")))
		require.Equal(t, http.StatusNotFound, statusOf(b.as("root", "GET", "/hub/scale?class=none", "")))
		const jobs = 12
		var ids []string
		for n := range jobs {
			ids = append(ids, b.submit(work(20, n, "none"), "ann"))
		}
		eventually(t, func() bool { return cloud.count() == 3 }, 10*time.Minute, time.Second)
		scale := decoded[struct {
			Class, Why string
			Value, Max int
			Budget     float64
		}](t, b.acts("root", "GET", "/hub/scale?class=gpu", ""))
		require.Equal(t, 3, scale.Value)
		require.Equal(t, 3, scale.Max)
		require.InDelta(t, 10, scale.Budget, 0)
		require.NotEmpty(t, scale.Why)
		require.InDelta(t, 3, b.metric(`comfyhub_instances_wanted{class="gpu"}`), 0)
		for _, id := range ids {
			require.Equal(t, "success", b.finished(id).Status.Text, id)
		}
		eventually(t, func() bool { return cloud.count() == 0 }, 10*time.Minute, time.Second)
		started, last := 0, int64(0)
		for _, c := range cloud.changes {
			require.Greater(t, c.Sequence, last)
			last = c.Sequence
			started += c.Start
		}
		require.Equal(t, 3, started)
		// Nothing stays drained.
		eventually(t, func() bool {
			stops, err := b.hub.Queue.Stops(t.Context())
			return err == nil && len(stops) == 0
		}, time.Minute, time.Second)
		// What can run is known now, so another prompt starts one machine.
		again := b.submit(picture(1), "ann")
		require.Equal(t, "success", b.finished(again).Status.Text)
		require.Equal(t, 1, cloud.count())
	})
}

// A server that stays takes what it can do soon, and a prompt that its owner has paused starts
// nothing.
func TestElasticFleetIsNotForEverything(t *testing.T) {
	cloud := &rented{}
	inBench(t, benchOf(0, func(b *bench) {
		cloud.b = b
		b.instances = append(b.instances, newInstance(b.t, sim.Config{TimeScale: 1}))
		b.settings.Scale = []scale.Class{{Name: "gpu", Instances: []string{"gpu-*"}, Max: 3, IdleAfter: time.Minute, Provider: cloud}}
	}), func(t *testing.T, b *bench) {
		b.connected(1)
		for n := range 4 {
			b.submit(work(20, n, "none"), "ann")
		}
		for n := range 30 {
			require.True(t, b.steer(b.submit(work(20, 10+n, "none"), "ann"), `{"paused": true}`).Paused)
		}
		<-time.After(time.Minute)
		require.Empty(t, cloud.changes)
		for n := range 30 {
			b.submit(work(20, 100+n, "none"), "ann")
		}
		<-time.After(10 * time.Second)
		require.NotEmpty(t, cloud.changes)
	})
}

const runPodKey = "rp-secret"

// onRunPod lets jobs of a bench overflow to a fake of RunPod.
func onRunPod(fake *overflowtest.Endpoint, change ...func(*config.Overflow)) func(*bench) {
	fake.Key = runPodKey
	o := config.Overflow{
		Name: "pod", RunPod: "abc123", Key: runPodKey, API: "https://api.runpod.example/v2", Egress: egress.Options{Transport: fake},
		After: 30 * time.Second, Price: 0.001, Budget: 20, Max: 2, Timeout: 10 * time.Minute,
	}
	for _, f := range change {
		f(&o)
	}
	return func(b *bench) { b.settings.Overflow = append(b.settings.Overflow, o) }
}

// A job that waits for too long is run at the endpoint. Its client sees what it sees of any other,
// and its tenant is billed for it.
func TestOverflow(t *testing.T) {
	fake := &overflowtest.Endpoint{Waits: 20 * time.Second, Takes: 40 * time.Second}
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1}), onRunPod(fake), func(b *bench) { b.settings.Operators = []string{"default"} }), func(t *testing.T, b *bench) {
		b.connected(1)
		b.begins(work(3600, 1, "none"), "busy")
		client := b.dial("someone")
		posted := time.Now()
		id := b.submit(work(1, 2, "none"), "someone")
		<-time.After(20 * time.Second)
		made, _ := fake.Runs()
		require.Zero(t, made)
		require.Contains(t, string(b.posts("/hub/explain", `{"prompt_id": "`+id+`"}`)), "would overflow in 1")
		heard := client.until(id)
		require.Contains(t, heard, comfyui.TypeExecutionStart)
		require.Contains(t, heard, comfyui.TypeProgress)
		require.Contains(t, heard, comfyui.TypeExecutionSuccess)
		require.InDelta(t, 90, time.Since(posted).Seconds(), 15)
		entry := b.finished(id)
		require.Equal(t, "success", entry.Status.Text)
		require.Len(t, entry.Outputs["3"].Images, 1)
		status, content := b.get("/view?filename=" + entry.Outputs["3"].Images[0].Filename)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, overflowtest.Picture("3"), content)
		made, cancelled := fake.Runs()
		require.Equal(t, 1, made)
		require.Zero(t, cancelled)
		// 20 s and 40 s at 0.001 each.
		require.InDelta(t, 0.06, b.metric(`comfyhub_overflow_spent{endpoint="pod"}`), 1e-9)
		require.Contains(t, string(b.gets("/hub/scale")), `"spent_today": 0.06`)
		require.Contains(t, string(b.gets("/hub/usage")), `"overflow_cost": 0.06`)
	})
}

// What has private files stays, unless the operator lets it go; then it arrives with its files.
func TestOverflowKeepsInputs(t *testing.T) {
	for name, let := range map[string]bool{"kept": false, "let go": true} {
		t.Run(name, func(t *testing.T) {
			fake := &overflowtest.Endpoint{Takes: time.Second}
			inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1}), onRunPod(fake, func(o *config.Overflow) { o.Inputs = let })), func(t *testing.T, b *bench) {
				b.connected(1)
				b.begins(work(3600, 1, "none"), "busy")
				_, stored := b.upload("face.png", "", string(overflowtest.Picture("face")))
				require.Equal(t, "face.png", stored)
				id := b.submit(`{"1": {"class_type": "LoadImage", "inputs": {"image": "face.png"}},
					"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "a"}},
					"3": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "a"}}}`, "someone")
				<-time.After(time.Minute)
				made, _ := fake.Runs()
				if !let {
					require.Zero(t, made)
					require.Contains(t, string(b.posts("/hub/explain", `{"prompt_id": "`+id+`"}`)), "input files, which may not go there")
					return
				}
				entry := b.finished(id)
				require.Equal(t, map[string]string{"comfyhub-0-face.png": string(overflowtest.Picture("face"))}, fake.Images())
				for _, node := range []string{"2", "3"} { // told apart although their names begin alike
					require.Len(t, entry.Outputs[node].Images, 1)
					_, content := b.get("/view?filename=" + entry.Outputs[node].Images[0].Filename)
					require.Equal(t, overflowtest.Picture(node), content)
				}
			})
		})
	}
}

// A job that is cancelled ends at the endpoint as well, and costs what it took.
func TestOverflowIsCancelled(t *testing.T) {
	fake := &overflowtest.Endpoint{Takes: time.Hour}
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1}), onRunPod(fake)), func(t *testing.T, b *bench) {
		b.connected(1)
		b.begins(work(3600, 1, "none"), "busy")
		client := b.dial("someone")
		id := b.submit(work(1, 2, "none"), "someone")
		eventually(t, func() bool { made, _ := fake.Runs(); return made == 1 }, 2*time.Minute, time.Second)
		<-time.After(10 * time.Second)
		b.posts("/interrupt", `{"prompt_id": "`+id+`"}`)
		client.until(id)
		eventually(t, func() bool { _, cancelled := fake.Runs(); return cancelled == 1 }, time.Minute, time.Second)
		eventually(t, func() bool { return b.hub.Endpoints.Empty() }, time.Minute, time.Second)
		require.InDelta(t, 0.012, b.metric(`comfyhub_overflow_spent{endpoint="pod"}`), 0.003)
		require.Zero(t, b.metric(`comfyhub_overflow_set_aside{endpoint="pod"}`))
	})
}

// A day's budget is exceeded by no more than one run.
func TestOverflowBudget(t *testing.T) {
	fake := &overflowtest.Endpoint{Takes: time.Minute}
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1}), onRunPod(fake, func(o *config.Overflow) { o.Budget, o.Max, o.Timeout = 0.2, 4, time.Minute })), func(t *testing.T, b *bench) {
		b.begins(work(3600, 1, "none"), "busy")
		for n := range 20 {
			b.submit(work(1, 2+n, "none"), "someone")
		}
		<-time.After(8 * time.Minute)
		made, _ := fake.Runs()
		// Each costs 0.06.
		require.Equal(t, 4, made)
		require.InDelta(t, 0.24, b.metric(`comfyhub_overflow_spent{endpoint="pod"}`), 1e-9)
		require.InDelta(t, 1, b.metric(`comfyhub_overflow_closed{endpoint="pod"}`), 0)
	})
}

// A job that no server can run goes to the endpoint at once if that can.
func TestOverflowOfWhatNobodyCanRun(t *testing.T) {
	fake := &overflowtest.Endpoint{Takes: time.Second, Key: runPodKey}
	info := `{"Only": {"input": {"required": {}}, "output": ["IMAGE"], "output_node": false}, "SaveImage": {"input": {"required": {"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "ComfyUI"}]}}, "output": [], "output_node": true}}`
	inBench(t, benchOf(0, onRunPod(fake, func(o *config.Overflow) { o.ObjectInfo = []byte(info) })), func(t *testing.T, b *bench) {
		eventually(t, func() bool { return b.hub.Dispatch.Instances.Names()["overflow:pod/1"] }, time.Minute, time.Second)
		posted := time.Now()
		entry := b.finished(b.submit(`{"1": {"class_type": "Only", "inputs": {}}, "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, "someone"))
		require.Len(t, entry.Outputs["2"].Images, 1)
		require.Less(t, time.Since(posted), 20*time.Second)
	})
}

// A hub is killed at each call that it makes to the endpoint, before or after it takes effect. The
// other hub goes on: nothing is paid for twice, and nothing is lost. Where nobody knows whether the
// endpoint has begun, the job runs in the fleet, once that has time; a service tells repeated
// requests from new ones, so there is no doubt.
func TestHubIsKilledAtACallOfAnEndpoint(t *testing.T) {
	for _, call := range []string{"POST /run", "POST /run lost", "GET /status 1", "GET /status 5", "POST /runs", "POST /runs lost", "GET /runs 1"} {
		t.Run(strings.ReplaceAll(call, "/", ""), func(t *testing.T) {
			killedAt(t, call, func(o *config.Overflow) {
				if strings.Contains(call, "/runs") {
					o.RunPod, o.URL = "", "https://gpus.example.com/comfy"
				}
			})
		})
	}
}

func killedAt(t *testing.T, at string, of func(*config.Overflow)) {
	inBubble(t, func(t *testing.T) {
		fake := &overflowtest.Endpoint{Waits: 2 * time.Second, Takes: 10 * time.Second}
		var (
			one    *bench
			mu     sync.Mutex
			calls  = map[string]int{}
			killed bool
			dead   = make(chan struct{})
		)
		words := strings.Fields(at)
		fake.Hook = func(call string) overflowtest.Fault {
			mu.Lock()
			defer mu.Unlock()
			calls[call]++
			nth := 1
			if len(words) > 2 && words[2] != "lost" {
				nth = int(words[2][0] - '0')
			}
			if killed || call != words[0]+" "+words[1] || calls[call] != nth {
				return overflowtest.NoFault
			}
			killed = true
			require.NoError(t, one.hub.DB.Close()) // it notes nothing any more
			close(dead)
			if len(words) > 2 && words[2] == "lost" {
				return overflowtest.Lost
			}
			return overflowtest.NoFault
		}
		server := redisInMemory(t)
		gpu := newInstance(t, sim.Config{TimeScale: 1})
		change := func(b *bench) {
			b.id.Redis = server
			onRunPod(fake, of)(b)
			b.instances = append(b.instances, gpu)
		}
		one = newBench(t, 0, change)
		two := newBench(t, 0, change, func(b *bench) { b.id.Storage = one.id.Data + "/files" })
		busy := one.begins(work(50, 1, "none"), "busy")
		id := two.submit(work(1, 2, "none"), "ann")
		// The first one takes the job: the other has no endpoint yet.
		<-dead
		one.stop()
		require.Equal(t, "success", two.finished(busy).Status.Text)
		require.Equal(t, "success", two.finished(id).Status.Text)
		made, _ := fake.Runs()
		require.Equal(t, 1, made, "paid once")
		eventually(t, func() bool { return two.hub.Endpoints.Empty() }, 2*time.Minute, time.Second)
		require.Zero(t, two.metric(`comfyhub_overflow_set_aside{endpoint="pod"}`))
	})
}

// While a change of "max" reaches one hub after the other, none ends what another one runs.
func TestOverflowOfHubsThatDiffer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		fake := &overflowtest.Endpoint{Takes: 20 * time.Second}
		server := redisInMemory(t)
		gpu := newInstance(t, sim.Config{TimeScale: 1})
		of := func(most int) func(*bench) {
			return func(b *bench) {
				b.id.Redis = server
				onRunPod(fake, func(o *config.Overflow) { o.Max = most })(b)
				b.instances = append(b.instances, gpu)
			}
		}
		one := newBench(t, 0, of(2))
		newBench(t, 0, of(1), func(b *bench) { b.id.Storage = one.id.Data + "/files" })
		one.begins(work(3600, 1, "none"), "busy")
		var ids []string
		for n := range 2 {
			ids = append(ids, one.submit(work(1, 2+n, "none"), "ann"))
		}
		for _, id := range ids {
			require.Equal(t, "success", one.finished(id).Status.Text)
		}
		made, cancelled := fake.Runs()
		require.Equal(t, 2, made)
		require.Zero(t, cancelled)
	})
}

// What the operator has drained stays drained when the scaler takes a machine back.
func TestScalerLeavesTheOperatorsDrain(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		name := b.hub.Fleet.Instances()[0].Name
		for _, stops := range []bool{true, false} {
			require.NoError(t, (&demand.Fleet{Queue: b.hub.Queue, Stops: b.hub.Stops}).Drain(t.Context(), name, stops))
			require.True(t, b.hub.Stops.Has(queue.StopInstance(name)))
			require.NoError(t, b.hub.Operator.Pause(t.Context(), queue.StopInstance(name)))
		}
		require.NoError(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance(name)))
		require.False(t, b.hub.Stops.Has(queue.StopInstance(name)))
	})
}
