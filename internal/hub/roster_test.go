package hub

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// A hub accepts what only another hub's instance can run, and lets it wait for that
// instance. It refuses what no hub's instance can run.
func TestPromptForAnotherHubsInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newPair(t, 1, 0)
		two.settings.Instances = []string{newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}).url()}
		require.NoError(t, two.hub.Start(t.Context(), two.settings))
		two.connected(1)
		eventually(t, func() bool { return slices.Contains(two.hub.inventory.catalog().Classes(), "SimulatedWork") }, time.Minute, 10*time.Millisecond)
		require.Equal(t, "success", two.finished(two.submit(work(1, 7, "none"), "ann")).Status.Text)
		require.Equal(t, 1, started(one))
		status, _ := two.post("/prompt", `{"prompt": {"1": {"class_type": "Nowhere", "inputs": {}}}}`)
		require.Equal(t, http.StatusBadRequest, status)
	})
}

// A hub that restarts refuses no prompt because the first of its instances cannot run
// it: it knows what the others could run.
func TestCatalogsOutliveARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}))
		})
		eventually(t, func() bool {
			seen, err := b.hub.db.Client().HLen(t.Context(), b.hub.db.Key("fleet", "seen")).Result()
			return err == nil && seen == 2
		}, time.Minute, 10*time.Millisecond)
		b.stop()
		b.settings.Instances = []string{b.instances[1].url()}
		b.start()
		b.connected(1)
		id := b.submit(work(1, 7, "none"), "ann")
		b.settings.Instances = []string{b.instances[0].url(), b.instances[1].url()}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.Equal(t, "success", b.finished(id).Status.Text)
	})
}
