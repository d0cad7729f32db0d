package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

func TestParseOnlyGPU(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"GPU-8f1c2d3e-1111, [N/A]\n":                  "GPU-8f1c2d3e-1111",
		"GPU-8f1c2d3e-1111, Disabled\n":               "GPU-8f1c2d3e-1111",
		"GPU-8f1c2d3e-1111, Enabled\n":                "",
		"GPU-8f1c2d3e-1111, [N/A]\nGPU-2222, [N/A]\n": "",
		"No devices were found\n":                     "",
		"GPU-\x1b[2J, [N/A]\n":                        "",
		"":                                            "",
	} {
		require.Equal(t, want, parseOnlyGPU(out), out)
	}
}

func FuzzParseOnlyGPU(f *testing.F) {
	f.Add("GPU-8f1c2d3e-1111, [N/A]\n")
	f.Fuzz(func(t *testing.T, out string) {
		if id := parseOnlyGPU(out); id != "" {
			require.NoError(t, checkGPU(id))
		}
	})
}

func TestOnlyGPU(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	require.Empty(t, onlyGPU(t.Context()))
	tool := filepath.Join(folder, "nvidia-smi")
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\necho 'GPU-1, [N/A]'\n"), 0o700))
	require.Equal(t, "GPU-1", onlyGPU(t.Context()))
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\nexit 9\n"), 0o700))
	require.Empty(t, onlyGPU(t.Context()))
}

func TestDeviceOfAnInstance(t *testing.T) {
	t.Parallel()
	cuda := comfyui.Observation{GPUType: "cuda"}
	cases := map[string]struct {
		instance instance
		only     string
		want     string
	}{
		"the machine has one GPU":      {instance{target: target{url: "http://127.0.0.1:8188"}, seen: cuda}, "GPU-1", "GPU-1"},
		"it is said":                   {instance{target: target{url: "http://127.0.0.1:8188", gpu: "left"}, seen: cuda}, "GPU-1", "left"},
		"the server is elsewhere":      {instance{target: target{url: "http://10.0.0.9:8188"}, seen: cuda}, "GPU-1", ""},
		"the server uses the CPU":      {instance{target: target{url: "http://127.0.0.1:8188"}}, "GPU-1", ""},
		"several GPUs, nobody said it": {instance{target: target{url: "http://127.0.0.1:8188"}, seen: cuda}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.instance.device(c.only))
		})
	}
}

func TestOnGPUs(t *testing.T) {
	t.Parallel()
	list := make([]target, 2)
	require.NoError(t, onGPUs(list, nil))
	require.NoError(t, onGPUs(list, []string{"0", "GPU-1:a_b"}))
	require.Equal(t, []target{{gpu: "0"}, {gpu: "GPU-1:a_b"}}, list)
	require.ErrorContains(t, onGPUs(list, []string{"0"}), "one for each")
	require.ErrorIs(t, onGPUs(list, []string{"0", "a/b"}), errGPU)
	require.ErrorIs(t, onGPUs(list, []string{"0", ""}), errGPU)
}
