package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// A job waits for a larger instance only while there is one.
func TestLargerInstanceLeaves(t *testing.T) {
	t.Parallel()
	registry := fleet.NewRegistry()
	parts := instance.New(instance.Config{Fleet: registry})
	sized := func(port int, gib int64) fleet.Instance {
		url := fmt.Sprintf("http://127.0.0.1:%d", port)
		name, err := registry.AddStatic(url)
		require.NoError(t, err)
		registry.Observe(fleet.InstanceReport{Name: name, URL: url, Up: true, Boot: 1, VRAMTotal: gib << 30})
		conn := linkTo(name, registry)
		parts.Links.Put(name, conn)
		conn.SetOpen()
		i, _ := registry.Instance(name)
		return i
	}
	small, large := sized(8188, 8), sized(8189, 24)
	m := NewMemory(registry, parts.Reports, parts.Links)
	m.avoid("job", need{8 << 30, []string{large.Name}})
	avoided := func(i fleet.Instance) bool {
		var at schedule.Idle
		m.AvoidSmall(i, &at)
		return at.Refused["job"]
	}
	require.True(t, avoided(small))
	require.False(t, avoided(large))
	registry.SetDraining(large.Name, true)
	require.False(t, avoided(small))
}
