package hub

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

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
				name, err := InstanceName(i.url())
				require.NoError(t, err)
				b.settings.GPUs[name] = "left"
			}
		})
		b.connected(2)
		post := func(id, graph string) {
			status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, graph, id))
			require.Equal(t, http.StatusOK, status, string(answer))
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
			known, _, err := b.hub.queue.Durations(t.Context(), 0)
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
		require.Zero(t, b.hub.dispatch.Stuck())
		status, _ := b.post("/interrupt", `{"prompt_id": "one"}`)
		require.Equal(t, http.StatusOK, status)
		is("two", "done")
	})
}
