package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

func TestPrecedence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		now := time.Now()
		for name, c := range map[string]struct {
			has         precedence
			left, first bool
		}{
			"nobody's":                       {precedence{}, false, false},
			"just freed":                     {precedence{key: "k", freed: now}, true, false},
			"freed before":                   {precedence{key: "k", freed: now.Add(-firstTurn)}, false, false},
			"seen idle for the first time":   {precedence{key: "k"}, true, true},
			"seen idle before":               {precedence{key: "k", idle: now.Add(-time.Millisecond)}, true, false},
			"idle, and nobody has told":      {precedence{key: "k", idle: now.Add(-firstTurnLost)}, false, false},
			"seen idle before it was freed":  {precedence{key: "k", idle: now.Add(-time.Hour), freed: now}, true, false},
			"freed before it was seen again": {precedence{key: "k", idle: now, freed: now.Add(-firstTurn)}, false, false},
		} {
			left, first, wait := c.has.left(now)
			require.Equal(t, c.left, left, name)
			require.Equal(t, c.first, first, name)
			require.Equal(t, c.first, wait > 0, name)
		}
	})
}

// An instance is left to the hub that gave it the last run, and only for a moment, also if
// that hub never says that the run has ended.
func TestFirstTurn(t *testing.T) {
	inBubbles(t, map[string]bool{"told": true, "not told": false}, func(t *testing.T, told bool) {
		b := newDispatching(t, 1)
		b.connects(1)
		conn := b.connection(b.instances[0].name)
		theirs := queue.Event{Kind: queue.Claimed, Key: "theirs", Instance: conn.name, Hub: "other/1"}
		isLeft := func(turn time.Duration) {
			t.Helper()
			began := time.Now()
			b.heard(theirs)
			if left := b.isLeft(conn); time.Since(began) < turn { // else the turn may be over
				require.True(t, left)
			}
		}
		isLeft(firstTurnLost)
		if theirs.Kind = queue.Freed; told {
			isLeft(firstTurn)
		}
		key := b.submit(picture)
		b.reaches(key, job.Done)
		require.False(t, b.isLeft(conn), "it is this hub's turn now")
		b.leaves(key)

		b.heard(theirs) // late
		require.False(t, b.isLeft(conn))
	})
}
