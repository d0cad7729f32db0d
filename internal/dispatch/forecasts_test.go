package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/job"
)

// While somebody looks ahead, perhaps with a round trip, whoever has accepted another job can leave.
func TestWaitForTheForecast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &Forecasts{last: lastOutlook{turn: semaphore.NewWeighted(1)}}
		require.NoError(t, f.last.turn.Acquire(t.Context(), 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.EqualValues(t, -1, f.Accepted(ctx, job.Job{}, -1))
	})
}
