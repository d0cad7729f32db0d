package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

func TestKeptGPUs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var k keptGPUs
		now := time.Now()
		g, other := &schedule.GPU{Name: "g"}, &schedule.GPU{Name: "other"}
		idle := []schedule.Idle{{GPU: g}, {GPU: other}, {}}
		k.add(nil, idle, now)
		require.False(t, g.Kept)
		k.add([]string{"g"}, idle, now)
		require.True(t, g.Kept)
		require.Contains(t, g.Why(), "kept free")
		require.False(t, other.Kept)
		k.mark(g, now.Add(keptFor))
		require.False(t, g.Kept, "nobody has looked since")
		require.Contains(t, g.Why(), "too little memory")
		k.add([]string{"other"}, idle, now.Add(2*keptFor))
		require.Len(t, k.until, 1)
	})
}

func TestGPUName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		said := map[string]string{"said": "left"}
		of := func(agent, device string) string {
			return instance.GPUName(said, fleet.Instance{Agent: agent, Report: fleet.InstanceReport{Device: device}})
		}
		require.Equal(t, "/left", instance.GPUName(said, fleet.Instance{Name: "said"}))
		require.Empty(t, of("box", ""))
		require.Equal(t, of("box", "0"), of("box", "0"))
		require.NotEqual(t, of("box", "0"), of("thief", "0"), "a machine names its own GPUs alone")
		require.Equal(t, of("box", "GPU-1"), of("sidecar", "GPU-1"))
	})
}
