package hub

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// rented is a provider whose machines are instances without an agent.
type rented struct {
	b  *bench
	mu sync.Mutex
	// machines are those that are there.
	machines []*instance
	changes  []scale.Change
}

// Set implements scale.Provider.
func (p *rented) Set(_ context.Context, c scale.Change) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(p.changes, c)
	p.machines = slices.DeleteFunc(p.machines, func(i *instance) bool {
		gone := slices.Contains(c.Remove, i.addr)
		if gone {
			i.die()
		}
		return gone
	})
	for len(p.machines) < c.Wanted {
		p.machines = append(p.machines, newInstance(p.b.t, sim.Config{TimeScale: 1}))
	}
	settings := p.b.settings
	settings.Instances = nil
	for _, i := range p.machines {
		settings.Instances = append(settings.Instances, i.url())
	}
	return p.b.hub.Start(p.b.t.Context(), settings)
}

func (p *rented) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.machines)
}

// Prompts that nobody is there for start machines; these run them, and go once they have nothing to
// do. Operators see it, and nobody else does.
func TestElasticFleet(t *testing.T) {
	cloud := &rented{}
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{}, func(b *bench) {
			cloud.b = b
			b.settings.Operators = []string{"root"}
			b.settings.Scale = []scale.Class{{Name: "gpu", Instances: []string{"*"}, Max: 3, IdleAfter: time.Minute, Price: 2, Budget: 10, Provider: cloud}}
		})
		require.Equal(t, http.StatusForbidden, statusOf(b.as("ann", "GET", "/hub/scale", "")))
		require.Equal(t, http.StatusNotFound, statusOf(b.as("root", "GET", "/hub/scale?class=none", "")))
		const jobs = 12
		var ids []string
		for n := range jobs {
			ids = append(ids, b.submit(work(20, n, "none"), "ann"))
		}
		eventually(t, func() bool { return cloud.count() == 3 }, 10*time.Minute, time.Second)
		scale := decoded[struct {
			Class, Why string
			Value, Max int
			Budget     float64
		}](t, b.acts("root", "GET", "/hub/scale?class=gpu", ""))
		require.Equal(t, 3, scale.Value)
		require.Equal(t, 3, scale.Max)
		require.InDelta(t, 10, scale.Budget, 0)
		require.NotEmpty(t, scale.Why)
		require.InDelta(t, 3, b.metric(`comfyhub_instances_wanted{class="gpu"}`), 0)
		for _, id := range ids {
			require.Equal(t, "success", b.finished(id).Status.Text, id)
		}
		eventually(t, func() bool { return cloud.count() == 0 }, 10*time.Minute, time.Second)
		started := 0
		for n, c := range cloud.changes {
			require.EqualValues(t, n+1, c.Sequence)
			started += c.Start
		}
		require.Equal(t, 3, started)
		// Nothing stays drained.
		eventually(t, func() bool {
			stops, err := b.hub.queue.Stops(t.Context())
			return err == nil && len(stops) == 0
		}, time.Minute, time.Second)
		// What can run is known now, so another prompt starts one machine.
		again := b.submit(picture(1), "ann")
		require.Equal(t, "success", b.finished(again).Status.Text)
		require.Equal(t, 1, cloud.count())
	})
}

// A server that stays takes what it can do soon, and a prompt that its owner has paused starts
// nothing.
func TestElasticFleetIsNotForEverything(t *testing.T) {
	cloud := &rented{}
	inBench(t, benchOf(0, func(b *bench) {
		cloud.b = b
		b.instances = append(b.instances, newInstance(b.t, sim.Config{TimeScale: 1}))
		b.settings.Scale = []scale.Class{{Name: "gpu", Instances: []string{"gpu-*"}, Max: 3, IdleAfter: time.Minute, Provider: cloud}}
	}), func(t *testing.T, b *bench) {
		b.connected(1)
		for n := range 4 {
			b.submit(work(20, n, "none"), "ann")
		}
		for n := range 30 {
			require.True(t, b.steer(b.submit(work(20, 10+n, "none"), "ann"), `{"paused": true}`).Paused)
		}
		<-time.After(time.Minute)
		require.Empty(t, cloud.changes)
		for n := range 30 {
			b.submit(work(20, 100+n, "none"), "ann")
		}
		<-time.After(10 * time.Second)
		require.NotEmpty(t, cloud.changes)
	})
}

// What the operator has drained stays drained when the scaler takes a machine back, or one is gone.
func TestScalerLeavesTheOperatorsDrain(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		name := b.hub.fleet.Instances()[0].Name
		scaler, drained := &elastic{queue: b.hub.queue, stops: b.hub.stops}, func() bool { return b.hub.stops.Has(queue.StopInstance(name)) }
		require.NoError(t, scaler.Drain(t.Context(), name, true))
		require.True(t, drained())
		require.NoError(t, b.hub.Operator().Pause(t.Context(), queue.StopInstance(name)))
		require.NoError(t, scaler.Drain(t.Context(), name, false))
		require.True(t, drained())
		require.NoError(t, b.hub.Operator().Resume(t.Context(), queue.StopInstance(name)))
		require.False(t, drained())
		require.NoError(t, scaler.Drain(t.Context(), name, true))
		require.NoError(t, scaler.Drain(t.Context(), name, false))
		require.False(t, drained())
	})
}
