package system_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/system"
)

// pictures is how many a prompt makes.
const pictures = 8

// together is a kind of prompts that servers make together.
type together struct {
	graph func(seed int) string
	// savers are the nodes that save pictures, the same number each.
	savers []string
	// channel says what of the files is as if one server had made them.
	channel string
	// cache is what servers keep of their results: a prompt of which one has a part already would look
	// as if it took less time.
	cache string
}

// parted are the kinds. With steps of 100 ms one server takes 17.6 s for either.
var parted = map[string]together{
	"batch":   {batch, []string{"9"}, "&channel=rgb", "classic"},
	"outputs": {branches, []string{"out0", "out1", "out2", "out3"}, "", "none"},
}

func batch(seed int) string {
	return fmt.Sprintf(`{
		"3": {"class_type": "KSampler", "inputs": {"seed": %[1]d, "steps": 20, "cfg": 8.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1,
			"model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}},
		"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
		"5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 128, "batch_size": %[2]d}},
		"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "tree %[1]d", "clip": ["4", 1]}},
		"7": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}},
		"8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
		"9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["8", 0]}}}`, seed, pictures)
}

// branches are four samplers of one text, with a sampler that draws over its whole batch.
func branches(seed int) string {
	var text strings.Builder
	fmt.Fprintf(&text, `{"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
		"5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 128, "batch_size": 2}},
		"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "tree %d", "clip": ["4", 1]}},
		"7": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}}`, seed)
	for n := range 4 {
		fmt.Fprintf(&text, `, "k%[1]d": {"class_type": "KSampler", "inputs": {"seed": %[2]d, "steps": 20, "cfg": 8.0, "sampler_name": "euler_ancestral", "scheduler": "normal",
			"denoise": 1, "model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["5", 0]}},
		"d%[1]d": {"class_type": "VAEDecode", "inputs": {"samples": ["k%[1]d", 0], "vae": ["4", 2]}},
		"out%[1]d": {"class_type": "SaveImage", "inputs": {"filename_prefix": "ComfyUI", "images": ["d%[1]d", 0]}}`, n, 10*seed+2*n)
	}
	return text.String() + "}"
}

const wholly = `"comfyhub": {"split": false}`

// inParts runs a scenario for each kind of prompts, with a fleet of four that has made one, so that the
// hubs know how long it takes. The race detector gets one kind: the hubs treat parts alike.
func inParts(t *testing.T, hubs int, scenario func(t *testing.T, w *system.World, a *ann)) {
	t.Helper()
	for name, kind := range parted {
		if testing.Short() && name != "outputs" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := system.Config{Hubs: hubs, Comfys: 4, Comfy: sim.Config{Version: "0.33.0", PreviewMethod: "auto", Cache: kind.cache, Models: map[string][]string{"checkpoints": {"a.safetensors"}}}}
			inWorld(t, c, func(w *system.World, ledger *system.Ledger) {
				a := &ann{together: kind, t: t, w: w, hub: w.Hubs[0]}
				a.listen()
				a.post("learn", 1, "")
				a.follow("learn")
				require.Equal(t, 1, started(w), "nobody knew how long it would take")
				<-time.After(15 * time.Second) // until all hubs know it
				scenario(t, w, a)
				_ = a.socket.CloseNow()
				<-time.After(10 * time.Second)
				w.CheckQuiet(ledger)
			})
		})
	}
}

func started(w *system.World) (n int) {
	for _, c := range w.Comfys {
		n += c.Started()
	}
	return n
}

func busy(w *system.World) (list []*system.Comfy) {
	for _, c := range w.Comfys {
		if c.Remaining() > 0 {
			list = append(list, c)
		}
	}
	return list
}

// Four servers make a prompt together. Their client sees one run, and the pictures that one server
// would have made, in a quarter of the time.
func TestPromptIsMadeInParts(t *testing.T) {
	t.Parallel()
	inParts(t, 1, func(t *testing.T, w *system.World, a *ann) {
		a.othersSave()
		before, began := started(w), time.Now()
		a.post("parts", 2, "")
		a.follow("parts")
		parted := time.Since(began)
		require.Equal(t, 4, started(w)-before)
		for _, kind := range []string{"execution_start", "execution_success"} {
			require.Len(t, a.told(kind), 1, kind)
		}
		require.Len(t, a.told("executed"), len(a.savers))
		for n, saver := range a.savers { // as one server would, in the order of the graph
			require.Contains(t, a.told("executed")[n], `"node": "`+saver+`"`)
			require.Equal(t, pictures/len(a.savers), strings.Count(a.told("executed")[n], "filename"))
		}
		require.NotEmpty(t, a.told("progress"))
		for _, status := range a.told("status") {
			require.NotRegexp(t, `"queue_remaining": ([2-9]|1\d)`, status)
		}
		a.toldOfAllNodes()
		heard := string(bytes.Join(a.heard, nil))
		require.Less(t, strings.Index(heard, `"execution_cached"`), strings.Index(heard, `"type": "executing"`))
		a.sees("parts", 2)
		began = time.Now()
		a.post("whole", 3, wholly)
		a.follow("whole")
		whole := time.Since(began)
		t.Logf("whole %v, in parts %v: %.2f times as fast", whole, parted, whole.Seconds()/parted.Seconds())
		require.Greater(t, whole.Seconds(), 3.5*parted.Seconds())
		_, answer := a.hub.Call(http.MethodGet, "/history", "")
		require.Equal(t, 4, strings.Count(string(answer), `"execution_start"`), "a part is in the history")
		_, answer = a.hub.Call(http.MethodGet, "/hub/usage", "")
		require.Contains(t, string(answer), `"done": 4`)
	})
}

// A client asks for parts of a prompt that no hub has seen before, and says how many.
func TestPartsAreAskedFor(t *testing.T) {
	c := system.Config{Hubs: 1, Comfys: 4, Comfy: sim.Config{Version: "0.33.0", Models: map[string][]string{"checkpoints": {"a.safetensors"}}}}
	inWorld(t, c, func(w *system.World, ledger *system.Ledger) {
		a := &ann{together: parted["batch"], t: t, w: w, hub: w.Hubs[0]}
		a.listen()
		for seed, wish := range []struct {
			split   string
			servers int
		}{{"true", 4}, {"2", 2}, {"1", 1}} {
			before, id := started(w), "asked "+wish.split
			a.post(id, seed, `"comfyhub": {"split": `+wish.split+`}`)
			a.follow(id)
			require.Equal(t, wish.servers, started(w)-before, wish.split)
			a.sees(id, seed)
			w.Until(time.Minute, "all are idle", func() bool { return len(busy(w)) == 0 })
			<-time.After(5 * time.Second)
		}
		_ = a.socket.CloseNow()
		<-time.After(10 * time.Second)
		w.CheckQuiet(ledger)
	})
}

// Runs that found three of four branches in their server's cache say how long the fourth takes, and not
// that the whole takes no longer: a prompt with four new ones is made in parts.
func TestCachedBranchesTeachNothing(t *testing.T) {
	c := system.Config{Hubs: 1, Comfys: 4, Comfy: sim.Config{Version: "0.33.0", StepTime: 20 * time.Millisecond, Models: map[string][]string{"checkpoints": {"a.safetensors"}}}}
	inWorld(t, c, func(w *system.World, ledger *system.Ledger) {
		kind := parted["outputs"]
		a := &ann{together: kind, t: t, w: w, hub: w.Hubs[0]}
		a.listen()
		a.post("learn", 1, wholly)
		a.follow("learn")
		for n := range 5 {
			a.graph = func(seed int) string {
				return strings.Replace(kind.graph(seed), `"seed": 16`, fmt.Sprintf(`"seed": %d`, 1000+n), 1)
			}
			id := fmt.Sprint("fourth", n)
			a.post(id, 1, wholly)
			a.follow(id)
			require.Contains(t, strings.Join(a.told("execution_cached"), ""), `"k0"`)
			require.NotContains(t, strings.Join(a.told("execution_cached"), ""), `"k3"`)
		}
		<-time.After(15 * time.Second)
		before := started(w)
		a.graph = kind.graph
		a.post("new", 2, "")
		a.follow("new")
		require.Equal(t, 4, started(w)-before)
		_ = a.socket.CloseNow()
		<-time.After(10 * time.Second)
		w.CheckQuiet(ledger)
	})
}

// A server dies with its part, which another one makes again.
func TestServerDiesWithAPart(t *testing.T) {
	t.Parallel()
	inParts(t, 1, func(t *testing.T, w *system.World, a *ann) {
		servers := 4 // one of them makes the first part
		if testing.Short() {
			servers = 1
		}
		for n := range servers {
			before := started(w)
			id := fmt.Sprint("killed", n)
			a.post(id, 10+n, "")
			w.Until(time.Minute, "all work", func() bool { return len(busy(w)) == 4 })
			<-time.After(time.Second)
			w.Comfys[n].Kill()
			<-time.After(time.Second)
			w.Comfys[n].Restart()
			a.follow(id)
			require.Equal(t, 5, started(w)-before)
			a.sees(id, 10+n)
			<-time.After(time.Minute) // it counts as sick for a while
		}
	})
}

// The hub that follows all parts is killed. The other one goes on with what the servers have.
func TestHubIsKilledBesideParts(t *testing.T) {
	t.Parallel()
	inParts(t, 2, func(t *testing.T, w *system.World, a *ann) {
		before := started(w)
		a.post("orphan", 20, "")
		w.Until(time.Minute, "all work", func() bool { return len(busy(w)) == 4 })
		<-time.After(time.Second)
		_ = a.socket.CloseNow()
		w.Hubs[0].Kill()
		a.hub = w.Hubs[1]
		a.listen()
		a.follow("orphan")
		require.Equal(t, 4, started(w)-before)
		w.Hubs[0].Start()
		a.sees("orphan", 20)
	})
}

// The hub is killed while it waits for the last part, which another server makes again.
func TestHubIsKilledBeforeTheLastPart(t *testing.T) {
	t.Parallel()
	inParts(t, 2, func(t *testing.T, w *system.World, a *ann) {
		before := started(w)
		a.post("last", 21, "")
		w.Until(time.Minute, "all work", func() bool { return len(busy(w)) == 4 })
		<-time.After(4 * time.Second)
		w.Comfys[3].Kill()
		w.Until(time.Minute, "one works", func() bool { return len(busy(w)) == 1 && started(w)-before == 5 })
		_ = a.socket.CloseNow()
		w.Hubs[0].Kill()
		w.Comfys[3].Restart()
		a.hub = w.Hubs[1]
		a.listen()
		a.follow("last")
		require.Equal(t, 5, started(w)-before)
		w.Hubs[0].Start()
		a.sees("last", 21)
	})
}

// Whoever cancels the prompt stops all servers.
func TestPartsAreCancelled(t *testing.T) {
	t.Parallel()
	inParts(t, 1, func(t *testing.T, w *system.World, a *ann) {
		a.post("cancelled", 30, "")
		w.Until(time.Minute, "all work", func() bool { return len(busy(w)) == 4 })
		<-time.After(time.Second)
		status, _ := a.hub.Call(http.MethodPost, "/interrupt", `{"prompt_id": "cancelled"}`)
		require.Equal(t, http.StatusOK, status)
		a.follow("cancelled")
		require.Len(t, a.told("execution_interrupted"), 1)
		w.Until(2*time.Second, "all are idle", func() bool { return len(busy(w)) == 0 })
		entry, names := a.history("cancelled")
		require.Contains(t, entry, "execution_interrupted")
		require.Empty(t, names)
	})
}

// The error of a part is that of the prompt, and the others stop.
func TestPartFails(t *testing.T) {
	t.Parallel()
	inParts(t, 1, func(t *testing.T, w *system.World, a *ann) {
		for n := range 4 {
			w.Comfys[n].SetFault(sim.Faults{FailAfterStep: 5})
			id := fmt.Sprint("failed", n)
			began := time.Now()
			a.post(id, 40+n, "")
			a.follow(id)
			require.Less(t, time.Since(began), 3*time.Second)
			w.Comfys[n].SetFault(sim.Faults{})
			require.Len(t, a.told("execution_error"), 1, "%d %s", n, bytes.Join(a.heard, []byte("\n")))
			w.Until(2*time.Second, "all are idle", func() bool { return len(busy(w)) == 0 })
			entry, _ := a.history(id)
			require.Contains(t, entry, "execution_error")
			require.Equal(t, 1, strings.Count(entry, "execution_start"))
		}
	})
}
