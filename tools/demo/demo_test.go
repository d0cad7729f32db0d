package main

import (
	"bytes"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// simulated starts a ComfyUI that has the workflow's checkpoint.
func simulated(t *testing.T) string {
	t.Helper()
	s := must.Get(sim.New(sim.Config{
		Dir:           t.TempDir(),
		TimeScale:     0.01,
		PreviewMethod: "auto",
		Models:        map[string][]string{"checkpoints": {"v1-5-pruned-emaonly-fp16.safetensors"}},
	}))(t)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() { s.Close(); web.Close() })
	return web.URL
}

func TestGenerateTellsWhatWentWrong(t *testing.T) {
	t.Parallel()
	server := simulated(t)
	for name, tc := range map[string]struct{ old, new, want string }{
		"refused":        {"v1-5-pruned-emaonly-fp16", "missing", "prompt_outputs_failed_validation"},
		"not a workflow": {"{", "[", "cannot unmarshal array"},
		"fails":          {"CLIPTextEncode", "NoSuchNode", "NoSuchNode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := strings.Replace(string(workflow), tc.old, tc.new, 1)
			if tc.old == "{" {
				broken = "[]"
			}
			_, err := generate(t.Context(), server, []byte(broken), &progress{w: new(bytes.Buffer)})
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestPictureMustBeWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	p := must.Get(generate(t.Context(), simulated(t), workflow, &progress{w: new(bytes.Buffer)}))(t)

	larger := graph{"5": {ClassType: "EmptyLatentImage", Inputs: map[string]any{"width": 1024.0, "height": 512.0}}}
	require.ErrorContains(t, p.check(larger), "the workflow asks for 1024 x 512")
	torn := picture{name: "torn", bytes: p.bytes[:len(p.bytes)/2]}
	require.ErrorContains(t, torn.check(nil), "no PNG")
}

func TestPickPort(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port

	require.NotEqual(t, "127.0.0.1:"+strconv.Itoa(port), must.Get(pickPort("test", port, true))(t))

	packets := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { packets.Close() })
	require.False(t, isFree(packets.LocalAddr().String(), true), "a port of which only the UDP half is taken")
}

// In a log a bar would be hundreds of lines.
func TestProgressWithoutTerminal(t *testing.T) {
	t.Parallel()
	var shown bytes.Buffer
	p := &progress{w: &shown}
	for step := range 21 {
		p.step("KSampler", step, 20, step)
	}
	p.step("VAEDecode", 1, 1, 21)
	p.step("Broken", 1, 0, 0)
	require.Equal(t, 5, strings.Count(shown.String(), "\n"), shown.String())

	shown.Reset()
	bar := &progress{w: &shown, terminal: true}
	bar.step("KSampler", 10, 20, 1)
	bar.step("KSampler", 99, 20, 2)
	require.NotContains(t, shown.String(), "\n", "one line, drawn twice")
	bar.line("done", "")
	require.Equal(t, 2, strings.Count(shown.String(), "\n"))
	require.Contains(t, shown.String(), strings.Repeat("█", barWidth)+" 20/20")
}
