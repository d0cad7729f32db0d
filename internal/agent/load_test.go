package agent

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
		a := &agent{instances: []*instance{local("GPU-0"), local("GPU-1")}}
		var load gpuLoad
		sample := gpuSample{cards: []card{{id: "GPU-0", use: 90}, {id: "GPU-1", use: 10}}}
		set := func() bool { return a.setLoad(sample, &load, theProcesses()) }
		require.True(t, set(), "where they are is news")
		for range 5 {
			require.False(t, set(), "a server that was just busy may have something left to do")
		}
		time.Sleep(settle)
		require.False(t, set())
		require.False(t, set())
		require.True(t, set())
		require.Equal(t, "its GPU is used by another program", a.instances[0].load)
		require.Equal(t, 90, a.instances[0].at.use)
		require.Empty(t, a.instances[1].load)
		require.False(t, set(), "no news")
		a.instances[0].seen.QueueRemaining = 1
		require.True(t, set(), "it works itself: nothing can be told")
		require.Empty(t, a.instances[0].load)
		require.Zero(t, a.instances[0].at.use)
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
			a.watchLoad(ctx, func(context.Context) (gpuSample, error) { calls++; return gpuSample{}, os.ErrNotExist })
		}()
		time.Sleep(3*sampleEvery + time.Second)
		cancel()
		<-done
		require.Equal(t, 4, calls, "at once, and every five seconds")
	})
}
