package roster

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The next process of a hub knows the instances that are gone, until an operator forgets them.
func TestMemoryOutlivesTheProcess(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		memory := func() *Memory {
			return &Memory{DB: db, Fleet: fleet.NewRegistry(), Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }}
		}
		first := memory()
		require.NoError(t, first.Recall(t.Context()))
		require.NoError(t, first.Fleet.Apply(fleet.Report{Agent: "studio", Boot: 1, Seq: 1, Instances: []fleet.InstanceReport{
			{Name: "studio-1", URL: "https://h:1/1", GPU: "RTX 4090", Up: true, Boot: 7}, {Name: "studio-2", URL: "https://h:1/2", Up: true, Boot: 8},
		}}))
		first.Fleet.SetBroken("studio-2", "its GPU reports an error")
		require.NoError(t, first.round(t.Context()))

		next := memory()
		require.NoError(t, next.Recall(t.Context()))
		i, known := next.Fleet.Instance("studio-1")
		require.True(t, known)
		require.Equal(t, fleet.Offline, i.State)
		require.Equal(t, "RTX 4090", i.Report.GPU)
		before, _ := first.Fleet.Instance("studio-1")
		require.WithinDuration(t, before.LastSeen, i.LastSeen, seenStep)

		require.NoError(t, next.Fleet.Apply(fleet.Report{Agent: "studio", Boot: 1, Seq: 2, Instances: []fleet.InstanceReport{
			{Name: "studio-2", URL: "https://h:1/2", Up: true, Boot: 8},
		}}))
		i, _ = next.Fleet.Instance("studio-2")
		require.Equal(t, fleet.Sick, i.State)
		require.NoError(t, next.Forget(t.Context(), "studio-1"))
		require.NoError(t, next.round(t.Context()))
		last := memory()
		require.NoError(t, last.Recall(t.Context()))
		_, known = last.Fleet.Instance("studio-1")
		require.False(t, known)
	})
}
