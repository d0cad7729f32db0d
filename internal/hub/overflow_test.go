package hub

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
	"github.com/comfyhub/comfyhub/internal/sim"
)

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
	inBench(t, benchOf(1, onRunPod(fake), func(b *bench) { b.settings.Operators = []string{"default"} }), func(t *testing.T, b *bench) {
		b.connected(1)
		b.begins(endless(1), "busy")
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
			inBench(t, benchOf(1, onRunPod(fake, func(o *config.Overflow) { o.Inputs = let })), func(t *testing.T, b *bench) {
				b.connected(1)
				b.begins(endless(1), "busy")
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
	inBench(t, benchOf(1, onRunPod(fake)), func(t *testing.T, b *bench) {
		b.connected(1)
		b.begins(endless(1), "busy")
		client := b.dial("someone")
		id := b.submit(work(1, 2, "none"), "someone")
		eventually(t, func() bool { made, _ := fake.Runs(); return made == 1 }, 2*time.Minute, time.Second)
		<-time.After(10 * time.Second)
		b.posts("/interrupt", `{"prompt_id": "`+id+`"}`)
		client.until(id)
		eventually(t, func() bool { _, cancelled := fake.Runs(); return cancelled == 1 }, time.Minute, time.Second)
		eventually(t, func() bool { return b.hub.overflow.book.Empty() }, time.Minute, time.Second)
		require.InDelta(t, 0.012, b.metric(`comfyhub_overflow_spent{endpoint="pod"}`), 0.003)
		require.Zero(t, b.metric(`comfyhub_overflow_set_aside{endpoint="pod"}`))
	})
}

// A day's budget is exceeded by no more than one run.
func TestOverflowBudget(t *testing.T) {
	fake := &overflowtest.Endpoint{Takes: time.Minute}
	slow := func(b *bench) { b.instances = append(b.instances, newInstance(b.t, sim.Config{TimeScale: 1})) }
	inBench(t, benchOf(0, slow, onRunPod(fake, func(o *config.Overflow) { o.Budget, o.Max, o.Timeout = 0.2, 4, time.Minute })), func(t *testing.T, b *bench) {
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
		eventually(t, func() bool { return b.hub.dispatch.Instances.Names()["overflow:pod/1"] }, time.Minute, time.Second)
		posted := time.Now()
		entry := b.finished(b.submit(`{"1": {"class_type": "Only", "inputs": {}}, "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, "someone"))
		require.Len(t, entry.Outputs["2"].Images, 1)
		require.Less(t, time.Since(posted), 20*time.Second)
	})
}
