package schedule_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

const graph = `{
 "4":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"sd15.safetensors"}},
 "5":{"class_type":"EmptyLatentImage","inputs":{"width":512,"height":768,"batch_size":2}},
 "6":{"class_type":"CLIPTextEncode","inputs":{"text":"a cat","clip":["4",1]}},
 "7":{"class_type":"CLIPTextEncode","inputs":{"text":"","clip":["4",1]}},
 "3":{"class_type":"KSampler","inputs":{"seed":1,"steps":20,"cfg":8,"sampler_name":"euler","denoise":1,"model":["4",0],"positive":["6",0],"negative":["7",0],"latent_image":["5",0]}},
 "8":{"class_type":"VAEDecode","inputs":{"samples":["3",0],"vae":["4",2]}},
 "9":{"class_type":"SaveImage","inputs":{"filename_prefix":"mine","images":["8",0]}}}`

func read(t *testing.T, graph string) schedule.Structure {
	t.Helper()
	s, ok := schedule.Read([]byte(graph))
	require.True(t, ok)
	return s
}

func TestStructure(t *testing.T) {
	t.Parallel()
	base := read(t, graph)
	require.InDelta(t, 20*512*768*2, base.Work, 1)
	require.Equal(t, 7, base.Nodes)
	for _, test := range []struct {
		name, from, to string
		same           bool
		work           float64
	}{
		{"seed", `"seed":1`, `"seed":18446744073709551615`, true, 1},
		{"text", `a cat`, `ten dogs.`, true, 1},
		{"prefix", `"mine"`, `"yours/of.png"`, true, 1},
		{"node id", `"5"`, `"55"`, true, 1},
		{"steps", `"steps":20`, `"steps":40`, true, 2},
		{"width", `"width":512`, `"width":1024`, true, 2},
		{"batch", `"batch_size":2`, `"batch_size":1`, true, .5},
		{"no denoise", `"denoise":1`, `"denoise":0`, true, .05},
		{"model", `sd15.safetensors`, `sdxl.safetensors`, false, 1},
		{"sampler", `euler`, `heun`, false, 1},
		{"class", `VAEDecode`, `VAEDecodeTiled`, false, 1},
		{"wiring", `"negative":["7",0]`, `"negative":["6",0]`, false, 1},
		{"output", `"vae":["4",2]`, `"vae":["4",1]`, false, 1},
		{"name of an input", `"samples":`, `"sample":`, false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			other := strings.ReplaceAll(graph, test.from, test.to)
			require.NotEqual(t, graph, other)
			s := read(t, other)
			require.Equal(t, test.same, s.Key == base.Key)
			require.InEpsilon(t, base.Work*test.work, s.Work, 1e-9)
			require.Equal(t, test.name == "model", s.Models != base.Models)
		})
	}
}

// A number may come from a node that holds one, and an advanced sampler runs part of its steps.
func TestWorkOfOtherForms(t *testing.T) {
	t.Parallel()
	linked := `{"1":{"class_type":"PrimitiveInt","inputs":{"value":30}},"2":{"class_type":"KSampler","inputs":{"steps":["1",0]}}}`
	require.InDelta(t, 30, read(t, linked).Work, 0)
	part := `{"2":{"class_type":"KSamplerAdvanced","inputs":{"steps":20,"start_at_step":5,"end_at_step":10000}}}`
	require.InDelta(t, 15, read(t, part).Work, 0)
	require.InDelta(t, 2.5, read(t, `{"1":{"class_type":"SimulatedWork","inputs":{"seconds":2.5}}}`).Work, 0)
}

// Graphs that real clients have posted have structures, and few of them share one.
func TestStructureOfRecordedPrompts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"prompts-0.3.64.json.gz", "prompts-0.33.0.json.gz"} {
		f, err := os.Open("../catalog/testdata/" + name)
		require.NoError(t, err)
		defer f.Close()
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		var all []struct{ Body string }
		require.NoError(t, json.NewDecoder(z).Decode(&all))
		keys, graphs := map[string]bool{}, 0
		for _, sent := range all {
			var p struct{ Prompt json.RawMessage }
			if json.Unmarshal([]byte(sent.Body), &p) != nil {
				continue // sent to see what a server says about it
			}
			s, ok := schedule.Read(p.Prompt)
			if !ok {
				continue
			}
			again, _ := schedule.Read(p.Prompt)
			require.Equal(t, s, again)
			keys[s.Key] = true
			graphs++
		}
		require.Greater(t, graphs, 10)
		require.Greater(t, len(keys), 5)
	}
}

func FuzzStructure(f *testing.F) {
	f.Add([]byte(graph))
	f.Add([]byte(`{"1":{"class_type":"A","inputs":{"a":["2",0]}},"2":{"class_type":"B","inputs":{"a":["1",0]}}}`))
	f.Add([]byte(`{"1":null,"2":[],"3":{"class_type":7,"inputs":3}}`))
	f.Add([]byte(`{"1":{"inputs":{"steps":1e999,"width":NaN,"height":-Infinity,"a":["1",0]}}}`))
	f.Fuzz(func(t *testing.T, graph []byte) {
		s, ok := schedule.Read(graph)
		if !ok {
			return
		}
		again, _ := schedule.Read(graph)
		require.Equal(t, s, again)
		require.Len(t, s.Key, 24)
		require.GreaterOrEqual(t, s.Work, 1e-3)
		require.LessOrEqual(t, s.Work, 1e15)
	})
}
