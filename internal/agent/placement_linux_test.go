package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestPortsOfProcesses(t *testing.T) {
	t.Parallel()
	p := withProcesses(t, map[int]string{
		7: "python main.py --port 9002", 8: "python main.py --port 9001", 9: "python main.py --port 9001 --cpu", 10: "nginx", 11: "python main.py",
	}, nil)
	require.Equal(t, []int{9001, 9002}, p.ports())
}

// withProcesses are processes by their ids: the command line with spaces, and the parent.
func withProcesses(t *testing.T, list map[int]string, parents map[int]int) processes {
	t.Helper()
	root := t.TempDir()
	for pid, command := range list {
		folder := filepath.Join(root, strconv.Itoa(pid))
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "cmdline"), []byte(strings.ReplaceAll(command, " ", "\x00")+"\x00"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "status"), fmt.Appendf(nil, "Name:\tpython\nPPid:\t%d\nUid:\t0\n", max(parents[pid], 1)), 0o600))
	}
	return processes{root}
}

func TestOwnProcess(t *testing.T) {
	t.Parallel()
	p := theProcesses()
	require.Equal(t, strings.TrimRight(string(must.Get(os.ReadFile("/proc/self/cmdline"))(t)), "\x00"), p.command(os.Getpid()))
	require.Equal(t, os.Getppid(), p.parent(os.Getpid()))
	require.Empty(t, p.command(1<<30))
	require.Zero(t, p.parent(1<<30))
}

// Two servers on a machine with two equal GPUs are found by their processes, and what others
// hold there is what is left.
func TestPlaceBySeveralGPUs(t *testing.T) {
	t.Parallel()
	const gib = 1024 * mebibyte
	p := withProcesses(t, map[int]string{
		10: "/usr/bin/python3 main.py --port 3188", 11: "/usr/bin/python3 main.py --port 3189", 12: "ollama runner", 13: "python3 helper.py",
	}, map[int]int{13: 11})
	s := gpuSample{
		cards: []card{
			{"0", "GPU-0", "NVIDIA GeForce RTX 4090", 0, 24 * gib, 20 * gib, false},
			{"1", "GPU-1", "NVIDIA GeForce RTX 4090", 0, 24 * gib, 6*gib + 300*mebibyte, false},
		},
		apps:   []app{{"GPU-0", 11, 4 * gib}, {"GPU-0", 13, gib}, {"GPU-0", 12, 15 * gib}, {"GPU-1", 10, 6 * gib}},
		listed: true,
	}
	server := func(port, command string) *instance {
		i := local("")
		i.url = "http://127.0.0.1:" + port
		i.seen.GPU, i.seen.Command = "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync", strings.ReplaceAll(command, " ", "\x00")
		return i
	}
	one, two := server("3188", "main.py --port 3188"), server("3189", "main.py --port 3189")
	a := &agent{servers: &servers{list: []*instance{one, two}}}
	var load gpuLoad
	require.True(t, a.servers.setLoad(s, &load, p))
	require.Equal(t, "GPU-1", one.device())
	require.Equal(t, "GPU-0", two.device())
	require.Zero(t, one.at.others, "a desktop's 300 MiB do not count")
	require.EqualValues(t, 15*gib, two.at.others, "without the process that the server has started")
	require.False(t, a.servers.setLoad(s, &load, p))

	// A process that computes nothing for a while has no place; the server keeps its.
	s.apps = s.apps[:3]
	a.servers.setLoad(s, &load, p)
	require.Equal(t, "GPU-1", one.device())
	one.seen.Boot = 2
	a.servers.setLoad(s, &load, p)
	require.Empty(t, one.device(), "another process may have another GPU")
	require.Zero(t, two.at.others, "it may be on this one: nothing can be told")

	// Two processes with one command line are not told apart.
	p = withProcesses(t, map[int]string{10: "python3 main.py", 11: "python3 main.py"}, nil)
	three := server("3190", "main.py")
	pid, _ := three.process(gpuSample{apps: []app{{"GPU-0", 10, gib}, {"GPU-1", 11, gib}}}, p)
	require.Zero(t, pid)
	pid, gpus := three.process(gpuSample{apps: []app{{"GPU-0", 10, gib}, {"GPU-1", 10, gib}}}, p)
	require.Equal(t, 10, pid)
	require.Len(t, gpus, 2)
	require.Zero(t, pidOf(three.process(gpuSample{apps: []app{{"GPU-0", 10, gib}}}, withProcesses(t, map[int]string{10: "python3 notmain.py"}, nil))))
}

func pidOf(pid int, _ []string) int { return pid }

func TestPlaceWithoutProcesses(t *testing.T) {
	t.Parallel()
	c4090 := card{index: "0", id: "GPU-a", name: "NVIDIA GeForce RTX 4090"}
	c4090too := card{index: "1", id: "GPU-b", name: "NVIDIA GeForce RTX 4090"}
	c3060 := card{index: "2", id: "GPU-c", name: "NVIDIA GeForce RTX 3060"}
	cuda := comfyui.Observation{Up: true, GPUType: "cuda", GPU: "cuda:0 NVIDIA GeForce RTX 4090 : native"}
	numbered := cuda
	numbered.CUDADevice = "1"
	wrong := cuda
	wrong.CUDADevice = "2"
	small := cuda
	small.GPU = "cuda:0 NVIDIA GeForce RTX 3060 : native"
	cpu := comfyui.Observation{Up: true, GPUType: "cpu"}
	here := "http://127.0.0.1:8188"
	split := c4090
	split.split = true
	cases := map[string]struct {
		target target
		seen   comfyui.Observation
		cards  []card
		want   string
	}{
		"the only GPU":                          {target{url: here}, cuda, []card{c4090}, "GPU-a"},
		"it is said":                            {target{url: here, gpu: "GPU-b"}, cuda, []card{c4090, c4090too}, "GPU-b"},
		"another name is said":                  {target{url: here, gpu: "left"}, cuda, []card{c4090}, "left"},
		"the server is elsewhere":               {target{url: "http://10.0.0.9:8188"}, cuda, []card{c4090}, ""},
		"the server uses the CPU":               {target{url: here}, cpu, []card{c4090}, ""},
		"several, and nothing tells":            {target{url: here}, cuda, []card{c4090, c4090too}, ""},
		"its number":                            {target{url: here}, numbered, []card{c4090, c4090too, c3060}, "GPU-b"},
		"a number that means another kind":      {target{url: here}, wrong, []card{c4090, c4090too, c3060}, ""},
		"the only one of its kind":              {target{url: here}, small, []card{c4090, c4090too, c3060}, "GPU-c"},
		"one that is split, without a name":     {target{url: here}, cuda, []card{split}, ""},
		"no GPU that the driver's tool lists":   {target{url: here}, cuda, nil, ""},
		"a server that is down has none either": {target{url: here}, comfyui.Observation{GPUType: "cuda"}, []card{c4090}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &instance{target: c.target, seen: c.seen}
			i.at = i.place(gpuSample{cards: c.cards}, theProcesses())
			require.Equal(t, c.want, i.device())
		})
	}
}
