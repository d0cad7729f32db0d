package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// An instance that api_only names runs the prompts for paid services, and nothing else; such prompts
// leave the GPUs to others for as long as it is there.
func TestAPIOnly(t *testing.T) {
	t.Parallel()
	cpu, gpu := newPaidServer(t, true), newPaidServer(t, true)
	var names [2]string
	b := newBench(t, 0, func(b *bench) {
		b.settings.Instances = []string{cpu.url, gpu.url}
		for n, url := range b.settings.Instances {
			names[n], _ = fleet.StaticName(url)
		}
		b.settings.APIOnly = []string{names[0]}
	})
	b.connected(2)
	var all []string
	for n := range 4 {
		all = append(all, b.submit(paidPicture(n), "ann"), b.submit(picture(n), "bob"))
	}
	for _, id := range all {
		b.finished(id)
	}
	require.Equal(t, 4, cpu.given(`"Paid"`))
	require.Equal(t, 4, cpu.given(`"EmptyImage"`), "nothing else")
	require.Equal(t, 4, gpu.given(`"EmptyImage"`))
	require.Zero(t, gpu.given(`"Paid"`), "although it was idle")

	require.NoError(t, b.hub.Operator.Drain(t.Context(), names[0], 0))
	b.finished(b.submit(paidPicture(10), "ann"))
	require.Equal(t, 1, gpu.given(`"Paid"`), "rather than never")
	require.NoError(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance(names[0])))

	require.NoError(t, b.hub.Operator.Drain(t.Context(), names[1], 0))
	waits := b.submit(picture(11), "bob")
	for _, i := range b.explain(waits).Instances {
		if i.Name == names[0] {
			require.Contains(t, i.Why, "it lacks leave to load models")
		}
	}
	require.NoError(t, b.hub.Operator.Resume(t.Context(), queue.StopInstance(names[1])))
	b.finished(waits)
}
