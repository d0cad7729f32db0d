package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
