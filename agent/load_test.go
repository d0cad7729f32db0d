package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

func TestParseUse(t *testing.T) {
	t.Parallel()
	use, err := parseUse("0, 97\n1, [N/A]\n 2 ,0\n")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"0": 97, "2": 0}, use)
	_, err = parseUse("No devices were found\n")
	require.Error(t, err)
}

func FuzzParseUse(f *testing.F) {
	f.Add("0, 97\n")
	f.Fuzz(func(t *testing.T, out string) { _, _ = parseUse(out) })
}

func TestNvidia(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	require.Nil(t, nvidia())
	tool := filepath.Join(folder, "nvidia-smi")
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\necho '0, 42'\n"), 0o700))
	use, err := nvidia()(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"0": 42}, use)
}

func TestGPULoad(t *testing.T) {
	t.Parallel()
	var load gpuLoad
	quiet := true
	at := func(percent int) bool {
		return load.sample(map[string]int{"0": percent}, func(string) bool { return quiet })["0"]
	}
	require.False(t, at(99))
	require.False(t, at(99))
	require.False(t, at(3), "a short burst is nothing")
	require.False(t, at(99))
	require.False(t, at(99))
	require.True(t, at(99))
	require.True(t, at(3), "nor is a short pause")
	require.True(t, at(99))
	require.True(t, at(3))
	require.False(t, at(3))
	for range 5 {
		quiet = false
		require.False(t, at(99), "our own work")
	}
	quiet = true
	require.False(t, at(99), "counting starts again after it")
}

func TestSetLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		idle := comfyui.Observation{Up: true, Since: time.Now()}
		a := &agent{instances: []*instance{{seen: idle}, {seen: idle}}}
		a.instances[0].seen.CUDADevice = "0"
		a.instances[1].seen.CUDADevice = "1"
		var load gpuLoad
		use := map[string]int{"0": 90, "1": 10}
		for range 5 {
			require.False(t, a.setLoad(use, &load), "a server that was just busy may have something left to do")
		}
		time.Sleep(settle)
		require.False(t, a.setLoad(use, &load))
		require.False(t, a.setLoad(use, &load))
		require.True(t, a.setLoad(use, &load))
		require.Equal(t, "its GPU is used by another program", a.instances[0].load)
		require.Empty(t, a.instances[1].load)
		require.False(t, a.setLoad(use, &load), "no news")
		a.instances[0].seen.QueueRemaining = 1
		require.True(t, a.setLoad(use, &load), "it works itself: nothing can be told")
		require.Empty(t, a.instances[0].load)
	})
}

func TestWatchLoadEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := &agent{log: discard()}
		calls := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.watchLoad(ctx, func(context.Context) (map[string]int, error) { calls++; return nil, os.ErrNotExist })
		}()
		time.Sleep(3*sampleEvery + time.Second)
		cancel()
		<-done
		require.Equal(t, 3, calls)
	})
}

func TestGPUOfAnInstance(t *testing.T) {
	t.Parallel()
	one, two := map[string]int{"3": 0}, map[string]int{"0": 0, "1": 0}
	named := &instance{seen: comfyui.Observation{CUDADevice: "1"}}
	require.Equal(t, "1", named.gpu(two))
	unnamed := &instance{}
	require.Equal(t, "3", unnamed.gpu(one), "there is only one")
	require.Empty(t, unnamed.gpu(two), "not known, so never blamed")
}
