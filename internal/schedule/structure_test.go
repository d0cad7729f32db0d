package schedule_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
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

// FuzzDecodeStructure reads what another version may have stored.
func FuzzDecodeStructure(f *testing.F) {
	for _, text := range []string{"", "a:b:12", "a:b:1e15", "a:b:NaN", "a:b:-1", ":b:1", "a:b", "a:b:1:2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := schedule.DecodeStructure(text)
		if !ok {
			require.Zero(t, s)
			return
		}
		again, ok := schedule.DecodeStructure(s.Encode())
		require.True(t, ok)
		require.InEpsilon(t, s.Work, again.Work, 1e-4)
		s.Work, again.Work = 0, 0
		require.Equal(t, s, again)
	})
}

const looped = `{"1":{"class_type":"StartLoop","inputs":{"mode":"simple","mode.num_iterations":2,"cache_iterations":false}},
 "2":{"class_type":"KSampler","inputs":{"steps":20,"seed":["1",0]}},
 "3":{"class_type":"EndLoop","inputs":{"output_value":["2",0],"accumulate":true}},
 "4":{"class_type":"KSampler","inputs":{"steps":10,"latent":["3",0]}},
 "9":{"class_type":"SaveImage","inputs":{"images":["4",0]}}}`

// What is in a loop counts as often as it runs, what is behind it once.
func TestWorkOfLoops(t *testing.T) {
	t.Parallel()
	base := read(t, looped)
	require.InDelta(t, 2*20+10, base.Work, 0)
	for _, tt := range []struct {
		name, from, to string
		work           float64
	}{
		{"more iterations", `"mode.num_iterations":2`, `"mode.num_iterations":50`, 50*20 + 10},
		{"none", `"mode.num_iterations":2`, `"mode.num_iterations":0`, 20 + 10},
		{"from a node", `"mode.num_iterations":2`, `"mode.num_iterations":["7",0]`, 30*20 + 10},
		{"a range", `"simple","mode.num_iterations":2`, `"For","mode.start_iteration_index":4,"mode.max_iteration":11,"mode.step":2`, 4*20 + 10},
		{"a list", `"simple","mode.num_iterations":2`, `"List","mode.list":["7",0]`, 20 + 10},
		{"no samplers", `"steps":20`, `"width":1`, 2 + 10},
		{"a schedule from outside", `"steps":20`, `"sigmas":["8",0]`, 2*15 + 10},
	} {
		graph := strings.Replace(looped, tt.from, tt.to, 1)
		require.NotEqual(t, looped, graph)
		graph = strings.Replace(graph, `{"1":`, `{"7":{"class_type":"PrimitiveInt","inputs":{"value":30}},`+
			strings.Repeat(`"8":{"class_type":"BasicScheduler","inputs":{"steps":15}},`, strings.Count(tt.to, "sigmas"))+`"1":`, 1)
		require.InDelta(t, tt.work, read(t, graph).Work, 0, tt.name)
	}
	require.Equal(t, base.Key, read(t, strings.Replace(looped, `iterations":2`, `iterations":50`, 1)).Key, "one structure")
}

// A loop in a loop runs as often as both say, also when they say more than anybody waits for.
func TestWorkOfNestedLoops(t *testing.T) {
	t.Parallel()
	nested := `{"1":{"class_type":"StartLoop","inputs":{"mode":"simple","mode.num_iterations":3}},
"2":{"class_type":"StartLoop","inputs":{"mode":"simple","mode.num_iterations":5,"parent_iteration":["1",0]}},
"3":{"class_type":"KSampler","inputs":{"steps":2,"seed":["2",0]}},"4":{"class_type":"EndLoop","inputs":{"output_value":["3",0]}},
"5":{"class_type":"KSampler","inputs":{"steps":100,"latent":["4",0]}},"6":{"class_type":"EndLoop","inputs":{"output_value":["5",0]}}}`
	require.InDelta(t, 3*(5*2+100), read(t, nested).Work, 0)
	var deep strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&deep, `"%d":{"class_type":"StartLoop","inputs":{"mode":"simple","mode.num_iterations":1e300,"parent_iteration":["%d",0]}},`, i+1, i)
	}
	require.InDelta(t, 1e15, read(t, `{`+deep.String()+`"x":{"class_type":"KSampler","inputs":{"steps":20,"seed":["1000",0]}}}`).Work, 0)
}
