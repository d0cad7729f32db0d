package dispatch

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestUpstreamID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		chosen := uuid.NewString()
		conn, other := &connection{}, &connection{}
		require.Equal(t, chosen, conn.upstreamID(job.Job{ID: chosen}))
		require.Equal(t, chosen, other.upstreamID(job.Job{ID: chosen}), "another instance has not seen it")
		fresh := map[string]bool{chosen: true}
		for _, j := range []job.Job{
			{ID: chosen},                        // used again by its client, or by another tenant's
			{ID: uuid.NewString(), Attempts: 1}, // a later attempt
			{ID: "no UUID"},
			{ID: "6A52EA99-846A-4FED-B36F-18AEAC669F3E"}, // not in the form that servers take
		} {
			id := conn.upstreamID(j)
			require.NoError(t, uuid.Validate(id))
			require.NotEqual(t, j.ID, id)
			require.False(t, fresh[id])
			fresh[id] = true
		}
	})
}
