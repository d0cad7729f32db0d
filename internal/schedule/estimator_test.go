package schedule_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	rtx = "NVIDIA GeForce RTX 4090"
	old = "NVIDIA T4"
)

func pair(structure, gpu string) schedule.Pair {
	return schedule.Pair{Structure: structure, Kind: "kind", GPU: gpu}
}

func sized(structure string, work float64) schedule.Structure {
	return schedule.Structure{Key: structure, Kind: "kind", Work: work}
}

// seconds is the run time of some work: 2 s plus a second per 1,000.
func seconds(work float64) time.Duration {
	return 2*time.Second + time.Duration(work*float64(time.Millisecond))
}

// Sizes that were never run are predicted within 20 % although a quarter of the runs are cached or
// load something.
func TestLearnsSizesDespiteOutliers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var e schedule.Estimator
		for n := range 12 {
			work := float64(1000 * (1 + random.IntN(8)))
			ran := time.Duration(float64(seconds(work)) * (0.97 + 0.06*random.Float64()))
			switch n {
			case 2, 7:
				ran = 100 * time.Millisecond
			case 5:
				ran = time.Minute
			}
			e.Add(pair("s", rtx), schedule.Sample{Work: work, Ran: ran})
		}
		for _, work := range []float64{500, 4500, 12000} {
			got := e.Estimate(sized("s", work), rtx)
			require.Equal(t, schedule.Learned, got.Source)
			require.InEpsilon(t, seconds(work).Seconds(), got.Ran.Seconds(), 0.2, "seed %d work %v", seed, work)
		}
	}
}

// The time to load models is learned separately from the run.
func TestLearnsLoadApart(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	e.Add(pair("s", rtx), schedule.Sample{Work: 10, Ran: 65 * time.Second, Cold: true})
	require.InDelta(t, 65, e.Estimate(sized("s", 10), rtx).Ran.Seconds(), 0.1, "all that is known")
	for range 5 {
		e.Add(pair("s", rtx), schedule.Sample{Work: 10, Ran: 5 * time.Second})
	}
	got := e.Estimate(sized("s", 10), rtx)
	require.InDelta(t, 5, got.Ran.Seconds(), 0.1)
	require.InDelta(t, 60, got.Load.Seconds(), 0.1)
}

// A GPU that becomes twice as slow is believed after three runs; two odd runs are not.
func TestLearnsDrift(t *testing.T) {
	t.Parallel()
	for _, sizes := range []int{1, 4} {
		var e schedule.Estimator
		add := func(n int, by float64) {
			work := float64(1000 * (1 + n%sizes))
			e.Add(pair("s", rtx), schedule.Sample{Work: work, Ran: time.Duration(by * float64(seconds(work)))})
		}
		for n := range 12 {
			add(n, 1)
		}
		add(0, 2)
		add(1, 2)
		require.InEpsilon(t, seconds(1000).Seconds(), e.Estimate(sized("s", 1000), rtx).Ran.Seconds(), 0.2)
		for n := range 12 {
			add(n, 2)
			require.InEpsilon(t, 2*seconds(1000).Seconds(), e.Estimate(sized("s", 1000), rtx).Ran.Seconds(), 0.35, "run %d of %d sizes", n, sizes)
		}
	}
}

func TestColdStart(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	require.Equal(t, schedule.Guess, e.Estimate(sized("s", 1), rtx).Source)
	for range 3 {
		e.Add(pair("s", rtx), schedule.Sample{Work: 1, Ran: 4 * time.Second})
	}
	require.Equal(t, schedule.Alike, e.Estimate(sized("other", 1), rtx).Source)
	require.Equal(t, schedule.Typical, e.Estimate(schedule.Structure{Key: "other", Kind: "x", Work: 1}, rtx).Source)
	require.InDelta(t, 4, e.Estimate(sized("s", 1), old).Ran.Seconds(), 0.01)
	// A structure that both have run tells how much slower the other one is.
	e.Add(pair("both", rtx), schedule.Sample{Work: 1, Ran: time.Second})
	e.Add(pair("both", old), schedule.Sample{Work: 1, Ran: 5 * time.Second})
	got := e.Estimate(sized("s", 1), old)
	require.Equal(t, schedule.OtherGPU, got.Source)
	require.InDelta(t, 20, got.Ran.Seconds(), 0.1)
}

// Many structures take a bounded amount of memory; those seen last stay.
func TestForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	for n := range schedule.MaxCells + 10 {
		e.Add(pair(fmt.Sprint(n), rtx), schedule.Sample{Work: 1, Ran: time.Second})
	}
	require.NotEqual(t, schedule.Learned, e.Estimate(sized("9", 1), rtx).Source)
	require.Equal(t, schedule.Learned, e.Estimate(sized("10", 1), rtx).Source)
}

func TestSamplesSurviveStorage(t *testing.T) {
	t.Parallel()
	a := schedule.Sample{Work: 1.5e7, Ran: 1234 * time.Millisecond, Cold: true}
	b := schedule.Sample{Work: 1, Ran: time.Millisecond}
	require.Equal(t, []schedule.Sample{a, b}, schedule.DecodeSamples(a.Encode()+" x 1w 9v9 "+b.Encode()))
	p := pair("s", "a: b")
	back, ok := schedule.ParsePair(p.Field())
	require.True(t, ok)
	require.Equal(t, p, back)
}

func FuzzDecodeSamples(f *testing.F) {
	f.Add("1w5 3c9")
	f.Add("NaNw1 1e400w1 -1c1 1w-9223372036854775808 1w99999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		var e schedule.Estimator
		samples := schedule.DecodeSamples(text)
		e.Set(pair("s", rtx), samples)
		got := e.Estimate(sized("s", 1e15), rtx)
		require.Greater(t, got.Ran, time.Duration(0))
		require.GreaterOrEqual(t, got.Load, time.Duration(0))
		for _, s := range samples {
			require.Len(t, schedule.DecodeSamples(s.Encode()), 1)
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	s := time.Second
	for _, test := range []struct {
		free  []time.Duration
		ahead int
		want  time.Duration
	}{
		{[]time.Duration{0}, 0, 0},
		{[]time.Duration{7 * s}, 0, 7 * s},
		{[]time.Duration{7 * s, 3 * s}, 1, 7 * s},
		{[]time.Duration{7 * s, 3 * s, -s}, 2, 7 * s},
		{[]time.Duration{0, 0}, 10, 50 * s},
		{[]time.Duration{0, 0}, 10_000, 50_000 * s},
	} {
		got, ok := schedule.Wait(test.free, test.ahead, 10*s)
		require.True(t, ok)
		require.Equal(t, test.want, got)
	}
	_, ok := schedule.Wait(nil, 3, s)
	require.False(t, ok)
	far, _ := schedule.Wait([]time.Duration{0}, 1<<40, time.Hour)
	require.Equal(t, 7*24*time.Hour, far)
}

func TestGPUType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"cuda:1 NVIDIA GeForce RTX 4090 : cudaMallocAsync": rtx, "cuda:0 NVIDIA T4 : native": old, rtx: rtx, "cpu": "cpu", "": "",
	} {
		require.Equal(t, want, schedule.GPUType(name), name)
	}
}

// The longest run is scaled up to the graph's work, but never down.
func TestLongest(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	longest, runs := e.Longest(sized("s", 1), rtx, false)
	require.Zero(t, longest)
	require.Zero(t, runs)
	e.Add(pair("s", rtx), schedule.Sample{Work: 1000, Ran: 3 * time.Second})
	e.Add(pair("s", rtx), schedule.Sample{Work: 2000, Ran: 5 * time.Second})
	e.Add(pair("s", rtx), schedule.Sample{Work: 1000, Ran: 8 * time.Second, Cold: true})
	e.Add(pair("s", old), schedule.Sample{Work: 1000, Ran: time.Hour})
	for _, c := range []struct {
		work float64
		cold bool
		want time.Duration
		runs int
	}{
		{work: 1000, want: 8 * time.Second, runs: 3},
		{work: 100, want: 8 * time.Second, runs: 3},
		{work: 4000, want: 32 * time.Second, runs: 3},
		{work: 2000, cold: true, want: 16 * time.Second, runs: 1},
	} {
		longest, runs = e.Longest(sized("s", c.work), rtx, c.cold)
		require.Equal(t, c.want, longest)
		require.Equal(t, c.runs, runs)
	}
}

const graph = `{
 "4":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"sd15.safetensors"}},
 "5":{"class_type":"EmptyLatentImage","inputs":{"width":512,"height":768,"batch_size":2}},
 "6":{"class_type":"CLIPTextEncode","inputs":{"text":"a cat","clip":["4",1]}},
 "7":{"class_type":"CLIPTextEncode","inputs":{"text":"","clip":["4",1]}},
 "3":{"class_type":"KSampler","inputs":{"seed":1,"steps":20,"cfg":8,"sampler_name":"euler","denoise":1,"model":["4",0],"positive":["6",0],"negative":["7",0],"latent_image":["5",0]}},
 "8":{"class_type":"VAEDecode","inputs":{"samples":["3",0],"vae":["4",2]}},
 "9":{"class_type":"SaveImage","inputs":{"filename_prefix":"mine","images":["8",0]}}}`

func read(t *testing.T, graph string) schedule.Structure {
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
