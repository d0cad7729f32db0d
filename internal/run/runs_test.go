package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// The dispatcher holds a connection while it asks the queue for permission to give
// it a job. A run that is being taken over must wait for that and not be given up.
func TestAdoptedRunWaitsForTheLink(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		runs := NewRuns()
		conn := linkTo("gpu", fleet.NewRegistry())
		trying := &Run{claim: claim{own: job.Job{Key: "other"}}}
		require.True(t, conn.Attach(trying.Holder()))
		adopted := &Run{claim: claim{own: job.Job{Key: "adopted"}}}
		seized := make(chan bool)
		go func() { seized <- runs.seize(t.Context(), conn, adopted, time.Minute) }()
		select {
		case <-seized:
			t.Fatal("the connection was not free")
		case <-time.After(50 * time.Millisecond):
		}
		require.True(t, conn.Detach(trying.Holder()))
		require.True(t, <-seized)
		require.Equal(t, adopted, Of(conn)[0])
	})
}
