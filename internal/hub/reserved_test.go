package hub_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// What is reserved for a tenant is free for its prompts; those of others neither run there nor
// learn whose it is.
func TestReserved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var own string
		b := shared(t, config.TenantLimits{}, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{}), newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}))
			own, _ = fleet.StaticName(b.instances[0].url())
			b.settings.Reserved = []schedule.Reservation{{Instances: own, Tenants: []string{"ada", "studio"}}}
		})
		eventually(t, b.hub.Classes.Beginning.HasLooked, time.Minute, 5*time.Millisecond)
		post := func(tenant, graph string) (int, string) {
			return b.as(tenant, http.MethodPost, "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": "%s-id"}`, graph, tenant))
		}
		for range 2 { // its own instance is the better one, and nobody else's
			answered(post("bob", picture(1)))(t, http.StatusOK)
			eventually(t, func() bool {
				_, text := b.as("bob", http.MethodGet, "/hub/jobs/bob-id", "")
				return strings.Contains(text, `"status": "done"`) && !strings.Contains(text, own)
			}, time.Minute, 5*time.Millisecond)
		}
		answer := answered(post("bob", work(1, 1, "none")))(t, http.StatusBadRequest)
		require.Contains(t, answer, "reserved for other tenants")
		require.Contains(t, answer, `"node_errors": {}`)
		require.NotContains(t, answer, "ada")
		answered(post("ada", endless(1)))(t, http.StatusOK)
		eventually(t, func() bool {
			_, text := b.as("ada", http.MethodGet, "/hub/jobs/ada-id", "")
			return strings.Contains(text, `"status": "running"`) && strings.Contains(text, own)
		}, time.Minute, 5*time.Millisecond)

		require.NoError(t, b.hub.Operator.Pause(t.Context(), queue.StopTenant("bob")))
		answered(post("bob", picture(2)))(t, http.StatusOK)
		answer = b.acts("bob", http.MethodPost, "/hub/explain", `{"prompt_id": "bob-id"}`)
		require.Contains(t, answer, "it is reserved for other tenants")
		require.NotContains(t, answer, "studio")
		_, answer = b.as("bob", http.MethodGet, "/hub/instances", "")
		require.NotContains(t, answer, "studio")
		require.NotContains(t, answer, "reserved")
		require.Contains(t, string(ops.InstancesJSON(b.hub.Operator.Instances())), `"reserved": ["ada", "studio"]`)
	})
}

// Of two instances on one GPU, only one runs a job that needs more than half of its memory,
// once the hub has seen how much such jobs take.
func TestInstancesShareAGPU(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			b.settings.GPUs = map[string]string{}
			for range 2 {
				// Every checkpoint of the simulator takes more than 2 GiB.
				i := newInstance(t, sim.Config{VRAM: 7 << 29, Models: map[string][]string{"checkpoints": {"a.safetensors"}}})
				b.instances = append(b.instances, i)
				name := must(fleet.StaticName(i.url()))(t)
				b.settings.GPUs[name] = "left"
			}
		})
		post := func(id, graph string) {
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, id))
		}
		is := func(id, what string) {
			eventually(t, func() bool {
				_, text := b.get("/hub/jobs/" + id)
				return strings.Contains(string(text), fmt.Sprintf(`"status": %q`, what))
			}, time.Minute, 5*time.Millisecond, id)
		}
		large := func(seconds float64, nonce int) string {
			loads := fmt.Sprintf(`"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": %q}},
				"5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
				"1": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["4", 2]}},`, "a.safetensors")
			_, rest, _ := strings.Cut(work(seconds, nonce, "none"), "}},")
			return "{" + loads + strings.Replace(rest, `"steps": 10`, fmt.Sprintf(`"steps": %d`, max(10, int(seconds/5))), 1)
		}
		learned := func() bool {
			known, _, err := b.hub.Queue.Durations(t.Context(), 0)
			require.NoError(t, err)
			for pair := range known {
				if strings.HasPrefix(pair, "vram.") {
					return true
				}
			}
			return false
		}
		for n, deadline := 0, time.Now().Add(time.Minute); !learned(); n++ { // a run may end before it was looked at
			require.True(t, time.Now().Before(deadline), "nothing was learned")
			id := fmt.Sprint("first-", n)
			post(id, large(50, n))
			is(id, "done")
		}

		post("one", large(3600, 1000))
		is("one", "running")
		post("two", large(1, 1001))
		eventually(t, func() bool {
			_, answer := b.post("/hub/explain", `{"prompt_id": "two"}`)
			return strings.Contains(string(answer), "too little memory left")
		}, time.Minute, 5*time.Millisecond)
		post("small", work(1, 1, "none"))
		is("small", "done") // its need is not known: it runs beside the large one
		is("two", "queued")
		require.Zero(t, b.hub.Dispatch.Watchdog.Stuck())
		b.posts("/interrupt", `{"prompt_id": "one"}`)
		is("two", "done")
	})
}

// What the operator pauses gets no more runs, whichever hub was told, and says so; whatever is
// running goes on.
func TestPause(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		instance := b.hub.Fleet.Instances()[0].Name
		for _, c := range []struct {
			stop      queue.Stop
			reason    string
			elsewhere bool // another hub was told
		}{
			{queue.StopAll, "the operator has paused the queue", false},
			{queue.StopTenant(job.DefaultTenant), "the operator has paused your prompts", true},
			{queue.StopInstance(instance), "", false},
		} {
			pause := func(on bool) (err error) {
				switch {
				case c.elsewhere:
					_, err = b.hub.Queue.SetStop(t.Context(), c.stop, on)
				case on:
					err = b.hub.Operator.Pause(t.Context(), c.stop)
				default:
					err = b.hub.Operator.Resume(t.Context(), c.stop)
				}
				return err
			}
			long := b.submit(endless(1), "ann")
			eventually(t, func() bool { return b.explain(long).State == "running" }, time.Minute, 5*time.Millisecond)
			require.NoError(t, pause(true))
			id := b.submit(picture(2), "bob")
			eventually(t, func() bool {
				i, _ := b.hub.Fleet.Instance(instance)
				return b.explain(id).Reason == c.reason || c.reason == "" && i.State == fleet.Draining
			}, time.Minute, 5*time.Millisecond)
			require.Equal(t, "running", b.explain(long).State)
			if c.reason != "" {
				require.Nil(t, b.explain(id).ETA)
			}
			b.post("/interrupt", `{"prompt_id": "`+long+`"}`)
			eventually(t, func() bool { return b.explain(long).State == "cancelled" }, time.Minute, 5*time.Millisecond)
			<-time.After(time.Second)
			require.Equal(t, "queued", b.explain(id).State)
			require.Zero(t, b.hub.Dispatch.Watchdog.Stuck())

			require.NoError(t, pause(false))
			eventually(t, func() bool { return b.explain(id).State == "done" }, time.Minute, 5*time.Millisecond)
		}
		require.ErrorIs(t, b.hub.Operator.Pause(t.Context(), queue.StopInstance("nobody")), fleet.ErrUnknown)
		require.ErrorIs(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance("nobody")), fleet.ErrUnknown)
	})
}

// An instance that was set aside is used again when the operator resumes it: at this hub, and
// at the others once they hear that it is not paused any more.
func TestResumeOfAnInstanceSetAside(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		name := b.hub.Fleet.Instances()[0].Name
		aside := func() bool {
			i, _ := b.hub.Fleet.Instance(name)
			return i.Aside
		}
		b.hub.Fleet.SetAside(name, "its runs come to nothing")
		require.True(t, aside())
		require.NoError(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance(name)))
		require.False(t, aside())
		b.hub.Fleet.SetAside(name, "its runs come to nothing")
		for _, on := range []bool{true, false} {
			must(b.hub.Queue.SetStop(t.Context(), queue.StopInstance(name), on))(t)
			<-time.After(5 * time.Second) // a hub looks every two
		}
		require.False(t, aside())
	})
}

// A run that goes on after the deadline of a drain runs elsewhere, even if the hub restarts before;
// undoing a drain takes nothing back.
func TestDrainWithDeadline(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"one hub": false, "restarted": true} {
		runInBubble(t, name, func(t *testing.T) {
			b := newBench(t, 1)
			instance := b.hub.Fleet.Instances()[0].Name
			id := b.submit(work(3600, 1, "none"), "ann")
			eventually(t, func() bool { return b.explain(id).State == "running" }, time.Minute, 5*time.Millisecond)
			require.NoError(t, b.hub.Operator.Drain(t.Context(), instance, time.Hour))
			require.NoError(t, b.hub.Operator.Drain(t.Context(), instance, 50*time.Millisecond))
			if restart {
				b.stop()
				b.start()
			}
			eventually(t, func() bool { return b.explain(id).State == "queued" }, time.Minute, 5*time.Millisecond)
			require.Zero(t, b.explain(id).Attempts)
			eventually(t, func() bool {
				i, known := b.hub.Fleet.Instance(instance)
				return known && i.State == fleet.Draining && i.Report.Queue == 0
			}, time.Minute, 5*time.Millisecond)

			require.NoError(t, b.hub.Operator.Drain(t.Context(), instance, time.Hour))
			require.NoError(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance(instance)))
			eventually(t, func() bool { return b.explain(id).State == "running" }, time.Minute, 5*time.Millisecond)
			require.Equal(t, 1, b.explain(id).Attempts)
			b.post("/interrupt", `{"prompt_id": "`+id+`"}`)
			eventually(t, func() bool { return b.explain(id).State == "cancelled" }, time.Minute, 5*time.Millisecond)
			require.ErrorIs(t, b.hub.Operator.Drain(t.Context(), "nobody", time.Hour), fleet.ErrUnknown)
		})
	}
}

// An instance that is gone is forgotten with its pause; one that somebody reports is not.
func TestForgetInstance(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		o := b.hub.Operator
		present := b.hub.Fleet.Instances()[0].Name
		require.ErrorIs(t, o.ForgetInstance(t.Context(), present), fleet.ErrPresent)
		require.ErrorIs(t, o.ForgetInstance(t.Context(), "nobody"), fleet.ErrUnknown)

		report := fleet.Report{Agent: "box", Boot: 1, Seq: 1, Instances: []fleet.InstanceReport{{Name: "gone", URL: "http://127.0.0.1:1"}}}
		require.NoError(t, b.hub.Fleet.Apply(report))
		require.NoError(t, o.Pause(t.Context(), queue.StopInstance("gone")))
		require.ErrorIs(t, o.ForgetInstance(t.Context(), "gone"), fleet.ErrPresent, "its agent reports it")
		b.hub.Fleet.AgentLeft("box", 1, "")
		require.NoError(t, o.ForgetInstance(t.Context(), "gone"))
		_, known := b.hub.Fleet.Instance("gone")
		require.False(t, known)
		require.Empty(t, must(b.hub.Queue.Stops(t.Context()))(t))

		must(b.hub.Queue.SetStop(t.Context(), queue.StopInstance("long ago"), true))(t)
		require.NoError(t, o.ForgetInstance(t.Context(), "long ago"), "only its pause is left")
		require.ErrorIs(t, o.ForgetInstance(t.Context(), "long ago"), fleet.ErrUnknown)
	})
}
