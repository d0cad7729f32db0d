package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	answer := b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": %q}`, graph, id, client))
	require.Contains(b.t, string(answer), fmt.Sprintf(`"prompt_id": %q`, id))
}

func TestIDsOfAllAges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		for n, version := range ages {
			id := "made-up-" + version
			socket := b.dial("c" + version)
			b.postAs(id, "c"+version, workOn(version, 1, n, "none"))
			var all strings.Builder
			for {
				m := socket.next()
				require.Equal(t, id, m.Data.PromptID, "%s: %s", version, m.raw)
				all.WriteString(m.raw)
				if m.Type == "executing" && m.Data.Node == nil {
					break
				}
			}
			_, entry := b.get("/history")
			all.Write(entry)
			for upstream := range b.instances[n].Runs() {
				require.NotContains(t, all.String(), upstream, "%s: an id of the instance's shows", version)
			}
			require.Equal(t, version != "0.3.44", strings.Contains(all.String(), "progress_state"), version)
			e, ok := b.history(id)
			require.True(t, ok, version)
			require.JSONEq(t, fmt.Sprintf("%q", id), string(e.Prompt[1]), version)
			require.Equal(t, 1, b.instances[n].Started(), "%s ran it", version)
		}
	})
}

func TestInterruptsOfAllAges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		for n, version := range ages {
			socket := b.dial("c" + version)
			b.postAs("long "+version, "c"+version, endlessOn(version, n))
			require.Equal(t, "execution_start", socket.next().Type, version)
			b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, "long "+version))
			types := socket.until("long " + version)
			require.Equal(t, "execution_interrupted", types[len(types)-2], version)
			// It hit only that one, and nothing of it is left for the next.
			b.postAs("next "+version, "c"+version, workOn(version, 0.1, 100+n, "none"))
			require.Equal(t, "success", b.finished("next "+version).Status.Text, version)
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
				resp, err := http.Post(b.instances[n].url()+path, "application/json", strings.NewReader(body))
				require.NoError(t, err)
				status, answer := read(t, resp)
				require.Equal(t, http.StatusOK, status, string(answer))
				return string(answer)
			}
			var foreign struct {
				ID string `json:"prompt_id"`
			}
			answer := direct("/prompt", fmt.Sprintf(`{"prompt": %s, "client_id": "stranger"}`, endlessOn(version, n)))
			require.NoError(t, json.Unmarshal([]byte(answer), &foreign))
			eventually(t, func() bool {
				return slices.ContainsFunc(b.hub.fleet.Instances(), func(i fleet.Instance) bool {
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
			require.Contains(t, string(queue), foreign.ID, "%s: it runs on", version)
			direct("/interrupt", "{}")
			require.Equal(t, "success", b.finished("ours "+version).Status.Text, "a waiting job is not hit by an interrupt")
			require.Equal(t, 2, b.instances[n].Finished(), version)
		}
	})
}

func TestCachedOutputsOfAllAges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		for n, version := range ages {
			for _, client := range []string{"c" + version, ""} {
				var names []string
				for run := range 2 {
					id := fmt.Sprint(version, client, run)
					b.postAs(id, client, workOn(version, 0.1, n, "none"))
					e := b.finished(id)
					require.Equal(t, "success", e.Status.Text, id)
					require.Len(t, e.Outputs["4"].Images, 1, "%s: outputs of a cached run are in the history", id)
					names = append(names, e.Outputs["4"].Images[0].Filename)
				}
				require.Equal(t, names[0], names[1], "a cached run shows the old file")
			}
		}
	})
}

func TestErrorsOfAllAges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		// The whole fleet answers in the shapes of its oldest member.
		status, answer := b.post("/prompt", `{"prompt": {"1": {"class_type": "NoSuchNode", "inputs": {}}}}`)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, string(answer), `"type": "invalid_prompt"`)
		for n, version := range ages {
			socket := b.dial("c" + version)
			b.postAs("bad "+version, "c"+version, workOn(version, 0.1, n, "error"))
			var failed message
			for failed.Type != "execution_error" {
				failed = socket.next()
			}
			data := decoded[struct{ Data map[string]any }](t, failed.raw)
			for _, key := range []string{"prompt_id", "node_id", "node_type", "executed", "exception_message", "exception_type", "traceback", "current_inputs", "current_outputs"} {
				require.Contains(t, data.Data, key, version)
			}
			require.Equal(t, "3", data.Data["node_id"], version)
			require.Equal(t, "error", b.finished("bad "+version).Status.Text, version)
		}
	})
}

func TestPreviewsOfAllAges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mixedBench(t)
		for n, version := range ages {
			plain, flagged := b.dial("plain"+version), b.dial("flagged"+version)
			flags := `{"type": "feature_flags", "data": {"supports_preview_metadata": true}}`
			require.NoError(t, flagged.conn.Write(t.Context(), websocket.MessageText, []byte(flags)))
			require.Equal(t, "feature_flags", flagged.next().Type)
			for _, c := range []struct {
				socket *client
				name   string
				event  byte
			}{{plain, "plain", 1}, {flagged, "flagged", 4}} {
				id := c.name + " " + version
				b.postAs(id, c.name+version, workOn(version, 1, 10*n+int(c.event), "none"))
				events := c.socket.previews(id)
				require.NotEmpty(t, events, id)
				for _, event := range events {
					require.Equal(t, c.event, event, id)
				}
			}
		}
	})
}

// previews returns the event numbers of the binary frames up to the end of a prompt.
func (c *client) previews(id string) []byte {
	c.t.Helper()
	var events []byte
	for {
		kind, frame, err := c.conn.Read(c.t.Context())
		require.NoError(c.t, err)
		if kind == websocket.MessageBinary {
			events = append(events, frame[3])
			continue
		}
		m := message{}
		require.NoError(c.t, json.Unmarshal(frame, &m))
		if m.Type == "executing" && m.Data.PromptID == id && m.Data.Node == nil {
			return events
		}
	}
}

// recentInstance returns an instance of the newest known release.
func recentInstance(t *testing.T) *instance {
	return newInstance(t, sim.Config{Version: ages[len(ages)-1]})
}
