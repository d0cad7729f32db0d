package hub

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// A hub is killed at each call that it makes to the endpoint, before or after it takes effect. The
// other hub goes on: nothing is paid for twice, and nothing is lost. Where nobody knows whether the
// endpoint has begun, the job runs in the fleet, once that has time.
func TestHubIsKilledAtACallOfAnEndpoint(t *testing.T) {
	for _, call := range []string{"POST /run", "POST /run lost", "GET /status 1", "GET /status 2", "GET /status 5"} {
		t.Run(strings.ReplaceAll(call, "/", ""), func(t *testing.T) {
			killedAt(t, call, onRunPod)
		})
	}
}

// The same with a service that tells repeated requests from new ones: there is no doubt.
func TestHubIsKilledAtACallOfAService(t *testing.T) {
	for _, call := range []string{"POST /runs", "POST /runs lost", "GET /runs 1", "GET /runs 3"} {
		t.Run(strings.ReplaceAll(call, "/", ""), func(t *testing.T) {
			killedAt(t, call, func(fake *overflowtest.Endpoint, change ...func(*config.Overflow)) func(*bench) {
				return onRunPod(fake, append(change, func(o *config.Overflow) { o.RunPod, o.URL = "", "https://gpus.example.com/comfy" })...)
			})
		})
	}
}

func killedAt(t *testing.T, at string, with func(*overflowtest.Endpoint, ...func(*config.Overflow)) func(*bench)) {
	inBubble(t, func(t *testing.T) {
		fake := &overflowtest.Endpoint{Waits: 2 * time.Second, Takes: 10 * time.Second}
		var (
			one    *bench
			mu     sync.Mutex
			calls  = map[string]int{}
			killed bool
			dead   = make(chan struct{})
		)
		words := strings.Fields(at)
		fake.Hook = func(call string) overflowtest.Fault {
			mu.Lock()
			defer mu.Unlock()
			calls[call]++
			nth := 1
			if len(words) > 2 && words[2] != "lost" {
				nth = int(words[2][0] - '0')
			}
			if killed || call != words[0]+" "+words[1] || calls[call] != nth {
				return overflowtest.NoFault
			}
			killed = true
			require.NoError(t, one.hub.db.Close()) // it notes nothing any more
			close(dead)
			if len(words) > 2 && words[2] == "lost" {
				return overflowtest.Lost
			}
			return overflowtest.NoFault
		}
		server := redisInMemory(t)
		gpu := newInstance(t, sim.Config{TimeScale: 1})
		change := func(b *bench) {
			b.id.Redis = server
			with(fake)(b)
			b.instances = append(b.instances, gpu)
		}
		one = newBench(t, 0, change)
		two := newBench(t, 0, change, func(b *bench) { b.id.Storage = one.id.Data + "/files" })
		busy := one.begins(work(50, 1, "none"), "busy")
		id := two.submit(work(1, 2, "none"), "ann")
		// The first one takes the job: the other has no endpoint yet.
		<-dead
		one.stop()
		require.Equal(t, "success", two.finished(busy).Status.Text)
		require.Equal(t, "success", two.finished(id).Status.Text)
		made, _ := fake.Runs()
		require.Equal(t, 1, made, "paid once")
		eventually(t, func() bool { return two.hub.overflow.book.Empty() }, 2*time.Minute, time.Second)
		require.Zero(t, two.metric(`comfyhub_overflow_set_aside{endpoint="pod"}`))
	})
}
