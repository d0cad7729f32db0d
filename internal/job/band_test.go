package job_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Ranks sort by band, whatever the priority, and tell the band.
func TestBands(t *testing.T) {
	t.Parallel()
	order := []job.Band{job.Interactive, job.Normal, job.Bulk}
	for n, band := range order {
		parsed, ok := job.ParseBand(string(band))
		require.True(t, ok)
		require.Equal(t, band, parsed)
		least, most := band.Mark()+job.RankPrefix(job.MaxPriority, -5), band.Mark()+job.RankPrefix(job.MinPriority, 5)
		for _, rank := range []string{least, most} {
			require.Equal(t, band, job.Job{Rank: rank}.Band())
			require.Equal(t, rank == least, job.Job{Rank: rank}.InFront())
		}
		for _, lower := range order[n+1:] {
			require.Less(t, most, lower.Mark()+job.RankPrefix(job.MaxPriority, -5))
			require.True(t, lower.Below(band))
			require.False(t, band.Below(lower))
		}
		require.False(t, band.Below(band))
	}
	require.Equal(t, job.Normal, job.Job{}.Band())
	require.False(t, job.Band("").Below(job.Normal))
	require.Empty(t, job.Band("").Mark())
	for _, name := range []string{"", "vip", "BULK"} {
		_, ok := job.ParseBand(name)
		require.False(t, ok, name)
	}
}

func TestInFront(t *testing.T) {
	t.Parallel()
	for number, want := range map[float64]bool{-7: true, -0.5: true, math.Inf(-1): true, 0: false, 0.5: false, 12: false, math.Inf(1): false} {
		for _, priority := range []int{-100, 0, 100} {
			require.Equal(t, want, job.Job{Rank: job.RankPrefix(priority, number) + "turn:key"}.InFront(), "%v %d", number, priority)
		}
	}
	require.False(t, job.Job{}.InFront())
}
