package run

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/split"
)

// A client never sees the node that its graph does not have.
func TestHide(t *testing.T) {
	t.Parallel()
	v := &division{plan: split.Plan{Node: "comfyhub_part"}}
	for text, want := range map[string]string{
		`{"type": "execution_cached", "data": {"nodes": ["5", "comfyhub_part", "6"], "prompt_id": "a"}}`:                             `{"type": "execution_cached", "data": {"nodes": ["5", "6"], "prompt_id": "a"}}`,
		`{"type": "progress_state", "data": {"nodes": {"comfyhub_part": {"value": 1.0}, "3": {"value": 2.50}}}}`:                     `{"type": "progress_state", "data": {"nodes": {"3": {"value": 2.50}}}}`,
		`{"status": {"messages": [["execution_error", {"executed": ["comfyhub_part"], "exception_message": "not comfyhub_part"}]]}}`: `{"status": {"messages": [["execution_error", {"executed": [], "exception_message": "not comfyhub_part"}]]}}`,
		`{"data":  {"nodes": ["5"]}}`: `{"data":  {"nodes": ["5"]}}`, // byte by byte
		`comfyhub_part`:               `comfyhub_part`,
	} {
		require.Equal(t, want, string(v.hide([]byte(text))))
		require.Equal(t, text, string((*division)(nil).hide([]byte(text))))
	}
	for node, planted := range map[string]bool{"comfyhub_part": true, "3": false, "": false} {
		require.Equal(t, planted, v.planted(comfyui.Message{Type: comfyui.TypeExecuting, Node: node}))
		require.False(t, (*division)(nil).planted(comfyui.Message{Node: node}))
	}
	outputs := &division{plan: split.Branches{}}
	for _, node := range []string{"", "3"} { // its parts have no such node
		require.False(t, outputs.planted(comfyui.Message{Node: node}))
		require.False(t, outputs.blamed(comfyui.Entry{End: comfyui.TypeExecutionError, EndData: []byte(`{"node_id": "` + node + `"}`)}))
	}
	require.Equal(t, `{"a":  1}`, string(outputs.hide([]byte(`{"a":  1}`))))
}

func TestWishedParts(t *testing.T) {
	t.Parallel()
	none := partsWish{most: split.MaxParts, least: worthParts}
	for extra, want := range map[string]partsWish{
		`{"comfyhub": {"split": false}}`: {most: 1}, `{"comfyhub": {"split": 1}}`: {most: 1},
		`{"comfyhub": {"split": true}}`: {most: split.MaxParts}, `{"comfyhub": {"split": 3}}`: {most: 3}, `{"comfyhub": {"split": 1000}}`: {most: split.MaxParts},
		`{"comfyhub": {"split": 0}}`: none, `{"comfyhub": {"split": -2}}`: none, `{"comfyhub": {"split": 2.5}}`: none, `{"comfyhub": {"split": 1e99}}`: none,
		`{"comfyhub": {"split": "no"}}`: none, `{"comfyhub": {"split": null}}`: none,
		`{"comfyhub": {}}`: none, `{"comfyhub": []}`: none, `{"split": false}`: none, `[]`: none, `{`: none, ``: none,
	} {
		require.Equal(t, want, wishedParts([]byte(extra)), extra)
	}
}

// A job that was split before has the parts that it had, unless it cannot be split like that here.
func TestDividedAgain(t *testing.T) {
	t.Parallel()
	graph := `{"1": {"class_type": "EmptyImage", "inputs": {}}`
	for _, id := range []string{"a", "b", "c"} {
		graph += fmt.Sprintf(`, %[1]q: {"class_type": "SaveImage", "inputs": {"images": ["1", 0]}}`, id)
	}
	parent, outputs := uuid.New(), []string{"a", "b", "c"}
	key := func(set split.Outputs) string { return outputsKey(parent, set) }
	for name, c := range map[string]struct {
		parts []string
		core  bool
		want  [][]string
	}{
		"two others":                 {[]string{key(4), key(1)}, true, [][]string{{"b"}, {"c"}, {"a"}}},
		"one other":                  {[]string{key(5)}, true, [][]string{{"b"}, {"a", "c"}}},
		"not split":                  {nil, true, nil},
		"nothing is left":            {[]string{key(1), key(6)}, true, nil},
		"twice":                      {[]string{key(1), key(3)}, true, nil},
		"more outputs than it has":   {[]string{key(8)}, true, nil},
		"of another job":             {[]string{outputsKey(uuid.New(), 1)}, true, nil},
		"of a batch":                 {[]string{batchKey(parent, 1, 2)}, true, nil},
		"not with ComfyUI's classes": {[]string{key(1)}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Run{body: job.Body{Prompt: []byte(graph + "}"), Outputs: outputs, Targets: []byte(`["a", "b", "c", "d"]`), Inputs: []byte("in"), Requires: catalog.Requirements{Classes: []string{"SaveImage"}}.Encode()}}
			r.take(job.Job{Key: parent.String(), Parts: c.parts})
			v := dividing{r}.divided(func(string) bool { return c.core })
			require.Equal(t, c.want != nil, v != nil)
			if v == nil {
				return
			}
			r.division = v
			require.Equal(t, graph+"}", string(dividing{r}.graph()))
			require.JSONEq(t, string(must(json.Marshal(c.want[0]))), string(dividing{r}.targets()))
			require.Equal(t, c.parts, v.keys())
			for n, part := range v.others {
				require.Equal(t, c.want[n+1], part.Body.Outputs)
				require.JSONEq(t, string(must(json.Marshal(c.want[n+1]))), string(part.Body.Targets))
				require.Equal(t, graph+"}", string(part.Body.Prompt))
				require.Equal(t, "in", string(part.Body.Inputs))
				require.Equal(t, v.class, must(catalog.DecodeRequirements(part.Body.Requires)).Signature())
				require.NotEqual(t, schedule.Shape(must(pyjson.Parse(part.Body.Prompt))), part.Shape, "it takes less time than the whole")
			}
		})
	}
}

// An older hub cannot read what a part needs, and leaves it to others.
func TestPartNeeds(t *testing.T) {
	t.Parallel()
	whole := catalog.Requirements{Classes: []string{"KSampler", "VAEDecode"}}
	part, err := partNeeds(whole.Encode(), split.Inserted)
	require.NoError(t, err)
	require.Equal(t, catalog.Requirements{Classes: []string{"KSampler", "LatentFromBatch", "VAEDecode"}, Part: true}, part)
	again, err := catalog.DecodeRequirements(part.Encode())
	require.NoError(t, err)
	require.Equal(t, part, again)
	require.Contains(t, string(part.Encode()), `"v": 3`)
	require.NotEqual(t, whole.Signature(), part.Signature())
	part, err = partNeeds(whole.Encode())
	require.NoError(t, err)
	require.Equal(t, catalog.Requirements{Classes: whole.Classes, Part: true}, part, "a part without other nodes")
	_, err = partNeeds([]byte("{"), split.Inserted)
	require.Error(t, err)
}

// The key of a part says which outputs it makes, of which job.
func TestKeysOfOutputs(t *testing.T) {
	t.Parallel()
	one, other := uuid.New(), uuid.New()
	sets := []split.Outputs{1, 6, 1<<split.MaxOutputs - 1, 1 << (split.MaxOutputs - 1)}
	var keys []string
	for _, set := range sets {
		keys = append(keys, outputsKey(one, set))
	}
	found, ok := outputsOfKeys(one, keys)
	require.True(t, ok)
	require.Equal(t, sets, found)
	for name, keys := range map[string][]string{
		"of another job": {keys[0], outputsKey(other, 2)}, "of a batch": {batchKey(one, 1, 2)}, "of nothing": {uuid.NewString()}, "no key": {"a"},
	} {
		_, ok := outputsOfKeys(one, keys)
		require.False(t, ok, name)
	}
}
