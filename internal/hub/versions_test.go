package hub_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// ages are releases that differ in what a hub must know about them: who chooses
// the prompt_id, whom an interrupt hits, and where cached outputs are reported.
var ages = []string{"0.3.44", "0.3.56", "0.3.64", "0.24.0", "0.33.0"}

// classOfAge is a node class that only the instance of one release has, so that a
// prompt with it runs there.
func classOfAge(version string) string { return "Only_" + strings.ReplaceAll(version, ".", "_") }

// mixedBench is a hub with an instance of each release.
func mixedBench(t *testing.T) *bench {
	return newBench(t, 0, func(b *bench) {
		for _, version := range ages {
			name := classOfAge(version)
			info, err := pyjson.Parse(fmt.Appendf(nil, `{"input": {"required": {"image": ["IMAGE"]}},
				"input_order": {"required": ["image"]}, "output": ["IMAGE"], "output_is_list": [false], "output_name": ["IMAGE"],
				"name": %q, "display_name": %q, "description": "", "python_module": "custom_nodes.ages", "category": "ages",
				"output_node": false}`, name, name))
			require.NoError(t, err)
			class, ok := info.(*pyjson.Object)
			require.True(t, ok)
			b.instances = append(b.instances, newInstance(t, sim.Config{
				Version: version, CustomClasses: map[string]*pyjson.Object{name: class},
			}))
		}
	})
}

// workOn returns a graph that runs on the instance of one release.
func workOn(version string, seconds float64, nonce int, fail string) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": %d}},
		"2": {"class_type": %q, "inputs": {"image": ["1", 0]}},
		"3": {"class_type": "SimulatedWork", "inputs": {"image": ["2", 0], "seconds": %g, "steps": 4, "fail": %q, "nonce": %d}},
		"4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "ComfyUI"}}}`,
		nonce, classOfAge(version), seconds, fail, nonce)
}

// endlessOn is like endless, for one release.
func endlessOn(version string, nonce int) string {
	return strings.Replace(workOn(version, 3600, nonce, "none"), `"steps": 4`, `"steps": 720`, 1)
}

// postAs posts a prompt under a chosen id. client may be empty.
func (b *bench) postAs(id, client, graph string) {
	b.t.Helper()
	require.Contains(b.t, string(b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": %q}`, graph, id, client))), fmt.Sprintf(`"prompt_id": %q`, id))
}

// Clients see the same of every release: their ids and none of the instance's, outputs of cached
// runs, errors, previews of the kind that they asked for, and an interrupt that hits only its prompt.
func TestAllAges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		// The whole fleet answers in the shapes of its oldest member.
		answer := answered(b.post("/prompt", `{"prompt": {"1": {"class_type": "NoSuchNode", "inputs": {}}}}`))(t, http.StatusBadRequest)
		require.Contains(t, string(answer), `"type": "invalid_prompt"`)
		for n, version := range ages {
			me, id := "c"+version, "made-up-"+version
			socket := b.dial(me)
			b.postAs(id, me, workOn(version, 1, n, "none"))
			var all strings.Builder
			for m := (message{Type: "none"}); m.Type != "executing" || m.Data.Node != nil; {
				m = socket.next()
				require.Equal(t, id, m.Data.PromptID, "%s: %s", version, m.raw)
				all.WriteString(m.raw)
			}
			_, listed := b.get("/history")
			all.Write(listed)
			for upstream := range b.instances[n].Runs() {
				require.NotContains(t, all.String(), upstream, "%s: an id of the instance's shows", version)
			}
			require.Equal(t, version != "0.3.44", strings.Contains(all.String(), "progress_state"), version)
			first, _ := b.history(id)
			require.JSONEq(t, fmt.Sprintf("%q", id), string(first.Prompt[1]), version)
			require.Equal(t, 1, b.instances[n].Started(), "%s ran it", version)

			for run, client := range []string{me, "", ""} {
				again := fmt.Sprint("again ", version, run)
				b.postAs(again, client, workOn(version, 1, n, "none"))
				e := b.finished(again)
				require.Equal(t, "success", e.Status.Text, again)
				require.Equal(t, first.Outputs["4"], e.Outputs["4"], "a cached run shows the old file")
			}
			socket.until("again " + version + "0")

			b.postAs("long "+version, me, endlessOn(version, n))
			require.Equal(t, "execution_start", socket.next().Type, version)
			b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, "long "+version))
			types := socket.until("long " + version)
			require.Equal(t, "execution_interrupted", types[len(types)-2], version)

			before := b.instances[n].Started() // nothing of the interrupt is left for the next
			b.postAs("bad "+version, me, workOn(version, 0.1, 100+n, "error"))
			failed := socket.next()
			for failed.Type != "execution_error" {
				failed = socket.next()
			}
			data := decoded[struct{ Data map[string]any }](t, failed.raw)
			for _, key := range []string{"prompt_id", "node_type", "executed", "exception_message", "exception_type", "traceback", "current_inputs", "current_outputs"} {
				require.Contains(t, data.Data, key, version)
			}
			require.Equal(t, "3", data.Data["node_id"], version)
			require.Equal(t, "error", b.finished("bad "+version).Status.Text, version)
			require.Equal(t, before+1, b.instances[n].Started(), "%s: an error of the graph is not tried again", version)

			flagged := b.dial("flagged" + version)
			require.NoError(t, flagged.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`)))
			require.Equal(t, "feature_flags", flagged.next().Type)
			for event, c := range map[byte]*client{1: b.dial("plain" + version), 4: flagged} {
				name := map[byte]string{1: "plain", 4: "flagged"}[event] + version
				b.postAs(name, name, workOn(version, 1, 10*(n+20)+int(event), "none"))
				events := c.previews(name)
				require.NotEmpty(t, events, name)
				require.Equal(t, bytes.Repeat([]byte{event}, len(events)), events, name)
			}
		}
	})
}

// TestInterruptSparesForeignRuns interrupts a job that waits because somebody
// else's prompt runs on the only instance for it. On old servers an interrupt
// would hit that prompt, which must end only when its owner wants it to.
func TestInterruptSparesForeignRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		for n, version := range ages {
			direct := func(path, body string) string {
				resp := must(http.Post(b.instances[n].url()+path, "application/json", strings.NewReader(body)))(t)
				return string(answered(read(t, resp))(t, http.StatusOK))
			}
			foreign := idOf(t, direct("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "stranger"}`, endlessOn(version, n))))
			eventually(t, func() bool {
				return slices.ContainsFunc(b.hub.Fleet.Instances(), func(i fleet.Instance) bool {
					return i.URL == b.instances[n].url() && i.State == fleet.Foreign
				})
			}, time.Minute, time.Millisecond)
			b.postAs("ours "+version, "ann", workOn(version, 0.1, 100+n, "none"))
			b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, "ours "+version))
			b.post("/interrupt", "")
			require.Zero(t, b.instances[n].Finished(), version)
			resp, err := http.Get(b.instances[n].url() + "/queue")
			require.NoError(t, err)
			_, queue := read(t, resp)
			require.Contains(t, string(queue), foreign, "%s: it runs on", version)
			direct("/interrupt", "{}")
			require.Equal(t, "success", b.finished("ours "+version).Status.Text, "a waiting job is not hit by an interrupt")
			require.Equal(t, 2, b.instances[n].Finished(), version)
		}
	})
}

// previews returns the event numbers of the binary frames up to the end of a prompt.
func (c *client) previews(id string) (events []byte) {
	c.t.Helper()
	for {
		h := c.any()
		if h.binary != nil {
			events = append(events, h.binary[3])
		}
		if h.Type == "executing" && h.Data.PromptID == id && h.Data.Node == nil {
			return events
		}
	}
}

// What ComfyUI 0.38 says of an output's asset stays with the file, whatever the hub calls that; and
// files in folders by date are fetched from there.
func TestOutputsOfTheNewest(t *testing.T) {
	newest := sim.Config{Version: "0.38.1", DateBasedOutput: true}
	inBench(t, benchOf(0, serving(newest, newest)), func(t *testing.T, b *bench) {
		file := regexp.MustCompile(`\{"filename": "(ComfyUI_0000[12]_\.png)", "subfolder": "(\d{4}-\d\d-\d\d)", "type": "output", ` +
			`"metadata": \{"kind": "image", "width": \d+, "height": \d+\}, "id": "([0-9a-f-]{36})", "preview_id": "([0-9a-f-]{36})"\}`)
		names := map[string]bool{}
		clients := []*client{b.dial("c0"), b.dial("c1")}
		ids := []string{b.submit(picture(0), "c0"), b.submit(picture(1), "c1")}
		for n, c := range clients { // both instances call theirs by the same name
			id := ids[n]
			var executed string
			for m := c.next(); m.Type != "executing" || m.Data.Node != nil; m = c.next() {
				require.NotContains(t, m.Type, "assets", "of the instance's disk")
				if m.Type == "executed" {
					executed = m.raw
				}
			}
			shown := file.FindStringSubmatch(executed)
			require.NotNil(t, shown, executed)
			require.Equal(t, shown[3], shown[4])
			b.finished(id)
			require.Contains(t, b.text("/history/"+id), shown[0])
			require.Contains(t, b.text("/api/jobs/"+id), shown[0])
			require.True(t, strings.HasPrefix(string(answered(b.get("/view?filename="+shown[1]+"&type=output&subfolder="+shown[2]))(t, http.StatusOK)), "\x89PNG"))
			names[shown[1]] = true
		}
		require.Len(t, names, 2)
	})
}

// The nodes of a loop run under ids like 5.0.0.1_6, and everything about them arrives so: the node that
// is shown, the texts, and the entry in the history.
func TestLoopThroughTheHub(t *testing.T) {
	inBench(t, benchOf(0, serving(sim.Config{Version: "0.38.1", OnlyClasses: append(slices.Clone(someClasses), "StartLoop", "EndLoop")})), func(t *testing.T, b *bench) {
		c := b.dial("c")
		id := b.submit(`{"5": {"class_type": "StartLoop", "inputs": {"mode": "simple", "mode.num_iterations": 2, "cache_iterations": false}},
			"6": {"class_type": "EmptyImage", "inputs": {"width": 32, "height": 32, "batch_size": 1, "color": ["5", 0]}},
			"8": {"class_type": "EndLoop", "inputs": {"output_value": ["6", 0], "accumulate": true}},
			"194:9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "loop"}}}`, "c")
		var ran []string
		for m := c.next(); m.Type != "executing" || m.Data.Node != nil; m = c.next() {
			if m.Type == "executing" {
				shown := decoded[struct {
					Data struct {
						Display string `json:"display_node"`
					}
				}](t, m.raw)
				ran = append(ran, *m.Data.Node+" "+shown.Data.Display)
			}
		}
		require.Subset(t, ran, []string{"5 5", "5.0.0.0_6 6", "5.0.0.1_6 6", "8 8", "194:9 194:9"})
		require.NotContains(t, ran, "6 6", "only its copies run")
		require.Len(t, b.finished(id).Outputs["194:9"].Images, 2)
	})
}
