package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestNvidia(t *testing.T) {
	folder := t.TempDir()
	path := os.Getenv("PATH")
	t.Setenv("PATH", folder)
	require.Nil(t, nvidia())
	t.Setenv("PATH", path)
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("no awk here")
	}
	for _, name := range []string{"nvidia-smi", "cards", "apps"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), must.Get(os.ReadFile(filepath.Join("testdata", name)))(t), 0o700))
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+path)
	s := must.Get(nvidia()(t.Context()))(t)
	require.Equal(t, gpuSample{
		cards: []card{
			{"0", "GPU-e82ab913-2d6b-1a55-89a8-9ad23a5a09cf", "NVIDIA GeForce RTX 4090", 98, 24564 * mebibyte, 20548 * mebibyte, false},
			{"1", "GPU-4eac38f2-1a70-662a-f6f4-9b62d1778ef4", "NVIDIA GeForce RTX 4090", 0, 24564 * mebibyte, 5 * mebibyte, false},
			{"2", "GPU-f7c1496c-b7f5-b1d2-78ea-68826f778059", "NVIDIA A100-SXM4-80GB", -1, 81920 * mebibyte, 74709 * mebibyte, false},
		},
		apps: []app{
			{"GPU-e82ab913-2d6b-1a55-89a8-9ad23a5a09cf", 2069192, 12000 * mebibyte},
			{"GPU-e82ab913-2d6b-1a55-89a8-9ad23a5a09cf", 2680904, 518 * mebibyte},
			{"GPU-f7c1496c-b7f5-b1d2-78ea-68826f778059", 2198486, -1},
		},
		listed: true,
	}, s)
	require.NoError(t, os.Remove(filepath.Join(folder, "apps")))
	s = must.Get(nvidia()(t.Context()))(t)
	require.Len(t, s.cards, 3)
	require.False(t, s.listed, "which is not the same as none")
	require.NoError(t, os.Remove(filepath.Join(folder, "cards")))
	_, err := nvidia()(t.Context())
	require.Error(t, err)
}

func TestParseCards(t *testing.T) {
	t.Parallel()
	for out, bad := range map[string]bool{
		"": false, "0, GPU-1, 97, 24564, 1305, Enabled, NVIDIA A100, 80GB\n": false,
		"No devices were found\n": true, "0, 97\n": true, "0, GPU-\x1b[2J, 97, 1, 1, [N/A], x\n": true,
		"0, /etc/passwd, 97, 1, 1, [N/A], x\n": true,
		"0, GPU-1, 97, 24564, 1305, Enabled, NVIDIA A100, 80GB\n1, [GPU is lost], [N/A], [N/A], [N/A], [N/A], [Unknown Error]\n2, 97\n": false,
	} {
		cards, lost, err := parseCards(out)
		require.Equal(t, bad, err != nil, out)
		for _, c := range cards {
			require.Equal(t, strings.Count(out, "\n")-1, lost, out)
			require.Equal(t, card{"0", "GPU-1", "NVIDIA A100, 80GB", 97, 24564 * mebibyte, 1305 * mebibyte, true}, c)
		}
	}
}

func TestParseApps(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]bool{
		"": true, "GPU-1, 4711, 1012\nGPU-1, 4712, [Insufficient Permissions]\n": true,
		"GPU-1, [N/A], 1012\n": false, "GPU-1, 0, 1\n": false, "Failed to initialize NVML: Unknown Error\n": false,
	} {
		apps, ok := parseApps(out)
		require.Equal(t, want, ok, out)
		if len(apps) > 0 {
			require.Equal(t, []app{{"GPU-1", 4711, 1012 * mebibyte}, {"GPU-1", 4712, -1}}, apps)
		}
	}
}

func FuzzParseCards(f *testing.F) {
	f.Add("0, GPU-8f1c2d3e-1111, 97, 24564, 1305, [N/A], NVIDIA GeForce RTX 4090\n")
	f.Fuzz(func(t *testing.T, out string) {
		cards, _, _ := parseCards(out)
		require.LessOrEqual(t, len(cards), maxCards)
		for _, c := range cards {
			require.NoError(t, checkGPU(c.id))
			require.GreaterOrEqual(t, c.used, int64(-1))
			require.GreaterOrEqual(t, c.use, -1)
		}
	})
}

func FuzzParseApps(f *testing.F) {
	f.Add("GPU-1, 4711, 1012\n")
	f.Fuzz(func(t *testing.T, out string) {
		apps, _ := parseApps(out)
		for _, a := range apps {
			require.Positive(t, a.pid)
			require.GreaterOrEqual(t, a.used, int64(-1))
		}
	})
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
	beside.Bubble(t, func(t *testing.T) {
		a := &agent{servers: &servers{list: []*instance{local("GPU-0"), local("GPU-1")}}}
		var load gpuLoad
		sample := gpuSample{cards: []card{{id: "GPU-0", use: 90}, {id: "GPU-1", use: 10}}}
		set := func() bool { return a.servers.setLoad(sample, &load, theProcesses()) }
		require.True(t, set(), "where they are is news")
		for range 5 {
			require.False(t, set(), "a server that was just busy may have something left to do")
		}
		time.Sleep(settle)
		require.False(t, set())
		require.False(t, set())
		require.True(t, set())
		require.Equal(t, "its GPU is used by another program", a.servers.list[0].load)
		require.Equal(t, 90, a.servers.list[0].at.use)
		require.Empty(t, a.servers.list[1].load)
		require.False(t, set(), "no news")
		a.servers.list[0].seen.QueueRemaining = 1
		require.True(t, set(), "it works itself: nothing can be told")
		require.Empty(t, a.servers.list[0].load)
		require.Zero(t, a.servers.list[0].at.use)
	})
}

func TestWatchLoadEndsWithContext(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := newAgent(config{logger: discard()})
		calls := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.watchLoad(ctx, func(context.Context) (gpuSample, error) { calls++; return gpuSample{}, os.ErrNotExist })
		}()
		time.Sleep(3*sampleEvery + time.Second)
		cancel()
		<-done
		require.Equal(t, 4, calls, "at once, and every five seconds")
	})
}

// What was last seen of a GPU does not keep an instance from its jobs once nobody can look any more.
func TestLoadThatCannotBeReadAnyMore(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var said bytes.Buffer
		a := newAgent(config{logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		a.servers.hear = &hearing{}
		i := local("GPU-0")
		a.servers.list = []*instance{i}
		var blind atomic.Bool
		state := func() (load string, at placement) {
			synctest.Wait()
			a.servers.mu.Lock()
			defer a.servers.mu.Unlock()
			return i.load, i.at
		}
		look := func(context.Context) (gpuSample, error) {
			if blind.Load() {
				return gpuSample{}, errors.New("GPU is lost")
			}
			return gpuSample{cards: []card{{id: "GPU-0", use: 90, total: 24 << 30, used: 8 << 30}}, listed: true}, nil
		}
		var work sync.WaitGroup
		work.Go(func() { a.watchLoad(ctx, look) })
		defer work.Wait()
		defer cancel()
		time.Sleep(settle + 4*sampleEvery)
		load, _ := state()
		require.NotEmpty(t, load)

		blind.Store(true)
		time.Sleep(blindAfter - sampleEvery)
		load, _ = state()
		require.NotEmpty(t, load, "one look may fail")
		time.Sleep(time.Hour)
		load, at := state()
		require.Empty(t, load)
		require.Zero(t, at.use)
		require.Equal(t, "GPU-0", at.id, "it is still there")
		require.Equal(t, 1, strings.Count(said.String(), "GPU is lost"), said.String())

		blind.Store(false)
		time.Sleep(4 * sampleEvery)
		load, _ = state()
		require.NotEmpty(t, load)
	})
}

// hearing is a hub that listens.
type hearing struct{}

func (*hearing) Push(bool)                   {}
func (*hearing) Leave(context.Context) error { return nil }

// A look that never ends, as a process that the kernel does not let go, holds up nothing.
func TestLookThatHangs(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var said bytes.Buffer
		a := newAgent(config{logger: slog.New(slog.NewTextHandler(&said, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		free := make(chan struct{})
		calls := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.watchLoad(ctx, func(context.Context) (gpuSample, error) { calls++; <-free; return gpuSample{}, nil })
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, calls, "nobody starts one process after the other")
		require.Contains(t, said.String(), "cannot read the use of the GPUs any more")
		cancel()
		time.Sleep(lookEnd)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("the agent cannot stop")
		}
		close(free)
	})
}

// Nor does what the driver's tool leaves behind.
func TestNvidiaLeavesAProcess(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "nvidia-smi"), []byte("#!/bin/sh\n"+sleep+" 20 &\necho $! > "+folder+"/pid\n"), 0o700))
	t.Setenv("PATH", folder)
	began := time.Now()
	_, err = nvidia()(t.Context())
	require.ErrorIs(t, err, exec.ErrWaitDelay)
	require.Less(t, time.Since(began), 15*time.Second)
	var pid int
	must.Get(fmt.Sscan(string(must.Get(os.ReadFile(filepath.Join(folder, "pid")))(t)), &pid))(t)
	require.NoError(t, must.Get(os.FindProcess(pid))(t).Kill())
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
