package dispatch

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestUpstreamID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		chosen := uuid.NewString()
		var conn, other givenIDs
		require.Equal(t, chosen, conn.upstreamID(job.Job{ID: chosen}))
		require.Equal(t, chosen, other.upstreamID(job.Job{ID: chosen}), "another instance has not seen it")
		fresh := map[string]bool{chosen: true}
		for _, j := range []job.Job{
			{ID: chosen},                        // already used by its client, or by another tenant's
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

func TestPrecedence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		now, never := time.Now(), time.Time{}
		for name, c := range map[string]struct {
			key         string
			freed, idle time.Time
			left, first bool
		}{
			"nobody's":                       {"", never, never, false, false},
			"just freed":                     {"k", now, never, true, false},
			"freed before":                   {"k", now.Add(-firstTurn), never, false, false},
			"seen idle for the first time":   {"k", never, never, true, true},
			"seen idle before":               {"k", never, now.Add(-time.Millisecond), true, false},
			"idle, and nobody has told":      {"k", never, now.Add(-firstTurnLost), false, false},
			"seen idle before it was freed":  {"k", now, now.Add(-time.Hour), true, false},
			"freed before it was seen again": {"k", now.Add(-firstTurn), now, false, false},
		} {
			left, first, wait := (&precedence{key: c.key, freed: c.freed, idle: c.idle}).isLeft(now)
			require.Equal(t, c.left, left, name)
			require.Equal(t, c.first, first, name)
			require.Equal(t, c.first, wait > 0, name)
		}
	})
}
