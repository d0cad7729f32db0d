package job_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestInFront(t *testing.T) {
	t.Parallel()
	for number, want := range map[float64]bool{-7: true, -0.5: true, math.Inf(-1): true, 0: false, 0.5: false, 12: false, math.Inf(1): false} {
		for _, priority := range []int{-100, 0, 100} {
			require.Equal(t, want, job.Job{Rank: job.RankPrefix(priority, number) + "turn:key"}.InFront(), "%v %d", number, priority)
		}
	}
	require.False(t, job.Job{}.InFront())
}
