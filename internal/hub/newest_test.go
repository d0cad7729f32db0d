package hub

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
)

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
			status, body := b.get("/view?filename=" + shown[1] + "&type=output&subfolder=" + shown[2])
			require.Equal(t, http.StatusOK, status)
			require.True(t, strings.HasPrefix(string(body), "\x89PNG"))
			names[shown[1]] = true
		}
		require.Len(t, names, 2)
	})
}

// Whatever else an entry says of its file stays as it is, whatever the hub calls the file; only its
// path and another entry for it are renamed along.
func TestMembersOfOutputs(t *testing.T) {
	for name, members := range map[string]string{
		"size":            `"width": 64, "height": 48.0`,
		"metadata":        `"metadata": {"kind": "image", "type": "output", "width": 64, "made_by": {"name": "a\u00e9"}}`,
		"asset":           `"asset": {"id": "e2c0a1ce", "hash": "blake3:ab", "size": 12345678901234567890, "tags": ["output"], "preview_id": null}`,
		"asset by path":   `"asset": {"id": "e2c0a1ce", "file_path": "output/NAME"}`,
		"asset as a file": `"asset": {"filename": "NAME", "subfolder": "", "type": "output", "metadata": {}}`,
		"no asset":        `"asset": null, "metadata": null`,
	} {
		t.Run(name, func(t *testing.T) {
			called := make(chan string, 2)
			says := sim.Config{Version: "0.38.1", Annotate: func(file *pyjson.Object) {
				name := file.String("filename")
				called <- name
				v, _ := pyjson.Parse([]byte("{" + strings.ReplaceAll(members, "NAME", name) + "}"))
				for key, member := range v.(*pyjson.Object).All() {
					file.Set(key, member)
				}
			}}
			inBench(t, benchOf(0, serving(says, says)), func(t *testing.T, b *bench) {
				clients := []*client{b.dial("c0"), b.dial("c1")}
				ids := []string{b.submit(picture(0), "c0"), b.submit(picture(1), "c1")}
				names := map[string]bool{}
				for n, c := range clients {
					m := c.next()
					for m.Type != "executed" {
						m = c.next()
					}
					b.finished(ids[n])
					require.Equal(t, "ComfyUI_00001_.png", <-called, "both instances call theirs so")
					file := regexp.MustCompile(`ComfyUI_0000[12]_\.png`).FindString(m.raw)
					want := `{"filename": "` + file + `", "subfolder": "", "type": "output", ` + strings.ReplaceAll(members, "NAME", file)
					require.Contains(t, m.raw, want)
					require.Contains(t, b.text("/history/"+ids[n]), want)
					require.Contains(t, b.text("/api/jobs/"+ids[n]), want)
					names[file] = true
				}
				require.Len(t, names, 2)
			})
		})
	}
}

// What a node spends its time on reaches the client.
func TestActivityOfNodes(t *testing.T) {
	newest := sim.Config{Version: "0.38.1", LoadTime: 10 * time.Second, Models: map[string][]string{"checkpoints": {"a.safetensors"}}}
	inBench(t, benchOf(0, serving(newest)), func(t *testing.T, b *bench) {
		c := b.dial("c")
		b.submit(`{"1":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"a.safetensors"}},
			"2":{"class_type":"PreviewAny","inputs":{"source":["1",0]}}}`, "c")
		var seen []string
		for m := c.next(); m.Type != "executing" || m.Data.Node != nil; m = c.next() {
			if m.Type == "progress_state" {
				var state struct {
					Data struct {
						Nodes map[string]struct{ Activity string }
					}
				}
				require.NoError(t, json.Unmarshal([]byte(m.raw), &state))
				if a := state.Data.Nodes["1"].Activity; a != "" {
					seen = append(seen, a)
				}
			}
		}
		require.Equal(t, []string{"loading"}, seen)
	})
}

// A loop that nothing closes is refused at once, though /object_info does not tell what begins one.
func TestLoopsAreRefusedAtTheDoor(t *testing.T) {
	described := must(pyjson.Parse([]byte(`{"input":{"required":{"num_iterations":["INT",{"default":4,"min":0}]},
		"hidden":{"execution_list":["EXECUTION_LIST"]}},"output":["IMAGE"],"output_node":false,"name":"StartLoop",
		"python_module":"comfy_extras.nodes_loop","deprecated":false,"experimental":false,"api_node":false}`)))(t)
	newest := sim.Config{Version: "0.38.1", CustomClasses: map[string]*pyjson.Object{"StartLoop": described.(*pyjson.Object)}}
	inBench(t, benchOf(0, serving(newest)), func(t *testing.T, b *bench) {
		status, body := b.post("/prompt", `{"prompt": {"194:45": {"class_type": "StartLoop", "inputs": {"num_iterations": 3}},
			"9": {"class_type": "SaveImage", "inputs": {"images": ["194:45", 0], "filename_prefix": "x"}}}}`)
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, `{"error": {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation", `+
			`"details": "Start Loop has no End Loop: Start Loops without End Loops: 194:45", "extra_info": {}}, `+
			`"node_errors": {"194:45": {"errors": [{"type": "custom_validation_failed", "message": "Start Loop has no End Loop", `+
			`"details": "Start Loops without End Loops: 194:45", "extra_info": {"input_name": "loop boundary", `+
			`"loop_error_type": "loop_start_without_end", "node_ids": ["194:45"], "output_ids": ["9"]}}], `+
			`"dependent_outputs": ["9"], "class_type": "StartLoop"}}}`, string(body))
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
				var shown struct {
					Data struct {
						Display string `json:"display_node"`
					}
				}
				require.NoError(t, json.Unmarshal([]byte(m.raw), &shown))
				ran = append(ran, *m.Data.Node+" "+shown.Data.Display)
			}
		}
		require.Subset(t, ran, []string{"5 5", "5.0.0.0_6 6", "5.0.0.1_6 6", "8 8", "194:9 194:9"})
		require.NotContains(t, ran, "6 6", "only its copies run")
		require.Len(t, b.finished(id).Outputs["194:9"].Images, 2)
	})
}
