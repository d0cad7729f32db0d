package hub_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// An endpoint that hangs while a reload leaves it out holds up nobody but the reload.
func TestReloadWithoutAHangingEndpoint(t *testing.T) {
	var hold chan struct{}
	fake := &overflowtest.Endpoint{Takes: time.Hour, Hook: func(call string) overflowtest.Fault {
		if call == "GET /status" {
			<-hold
		}
		return overflowtest.NoFault
	}}
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1}), onRunPod(fake)), func(t *testing.T, b *bench) {
		hold = make(chan struct{})
		b.connected(1)
		b.begins(work(3600, 1, "none"), "busy")
		b.submit(work(1, 2, "none"), "someone")
		eventually(t, func() bool { made, _ := fake.Runs(); return made == 1 }, 2*time.Minute, time.Second)
		<-time.After(10 * time.Second)
		without, reloaded := b.settings, make(chan error, 1)
		without.Overflow = nil
		go func() { reloaded <- b.hub.Start(context.Background(), without) }()
		<-time.After(time.Second)
		places, err := b.hub.Endpoints.Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, places)
		require.Empty(t, reloaded)
		close(hold)
		require.NoError(t, <-reloaded)
	})
}

// An endpoint takes no runs for ten minutes. The job waits, and has lost no attempt when it does.
func TestOverflowToAnEndpointThatTakesNoRuns(t *testing.T) {
	fake := &overflowtest.Endpoint{Takes: time.Second}
	opened := atomic.Bool{}
	asked := atomic.Int32{}
	fake.Hook = func(call string) overflowtest.Fault {
		if call == "POST /run" && !opened.Load() {
			asked.Add(1)
			return overflowtest.Away
		}
		return overflowtest.NoFault
	}
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1}), onRunPod(fake)), func(t *testing.T, b *bench) {
		b.connected(1)
		b.begins(work(3600, 1, "none"), "busy")
		id := b.submit(work(1, 2, "none"), "someone")
		<-time.After(10 * time.Minute)
		require.Greater(t, asked.Load(), int32(queue.MaxReruns))
		opened.Store(true)
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Contains(t, string(b.gets("/hub/jobs/"+id)), `"attempts": 1,`)
	})
}
