package dispatch

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// monitors makes an instance's connection receive the figures that a custom node sends to every
// socket, whatever the instance is doing.
func (b *dispatching) monitors() {
	conn := b.Instances.Get(b.instances[0].name)
	done, ended := b.t.Context().Done(), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			conn.Hear(comfyui.Frame{Data: []byte(`{"type": "crystools.monitor", "data": {"cpu_utilization": 1}}`)})
			select {
			case <-tick.C:
			case <-done:
				tick.Stop()
				return
			}
		}
	}()
	b.t.Cleanup(func() { <-ended })
}

// The end of a run is noticed even if none of its messages arrives while others do, whatever they
// are: figures of the machine, or renewals that repeat a cancel.
func TestEndIsNoticedBesideOtherMessages(t *testing.T) {
	inBubbles(t, map[string]bool{"monitors": false, "a cancel that is repeated": true}, func(t *testing.T, cancelled bool) {
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.Lease = 300 * time.Millisecond })
		b.connects(1)
		key := b.submit(map[bool]string{false: working, true: endless}[cancelled])
		b.runs(key)
		b.set(func(s *Settings) { s.StallTimeout = 5 * time.Second })
		b.instances[0].SetFault(sim.Faults{Mute: true})
		if !cancelled {
			b.monitors()
			b.Runs.get(key).mail.put(runEvent{kind: socketDown, err: io.EOF}) // messages were missed
			b.reaches(key, job.Done)
			return
		}
		must(b.Queue.Cancel(t.Context(), key))
		b.leaves(key)
		require.Equal(t, []string{"cancelled"}, b.ends())
	})
}

// A run that hangs is interrupted even though the instance keeps sending what it always sends.
func TestHungRunBesideMonitors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.connects(1)
		b.monitors()
		conn := b.Instances.Get(b.instances[0].name)
		eventually(t, func() bool {
			return conn.Background.Has(comfyui.Message{Type: "crystools.monitor"})
		}, deadline, time.Millisecond)
		key := b.submit(endless)
		b.runs(key)
		b.instances[0].SetFault(sim.Faults{Mute: true})
		b.instances[0].on("POST /interrupt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			b.set(func(s *Settings) { s.StallTimeout = time.Minute }) // it may take its time to stop
			next.ServeHTTP(w, r)
		})
		b.set(func(s *Settings) { s.StallTimeout = 100 * time.Millisecond })
		require.Contains(t, b.lost(key), "silent for too long")
	})
}
