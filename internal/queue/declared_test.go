package queue

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Scripts that work with jobs read in a job's record which other keys there are: its class, its
// tenant, the job that has its instance. All others declare theirs; see docs/redis.md.
func TestWhoDeclaresKeys(t *testing.T) {
	t.Parallel()
	all := []*redis.Script{
		enqueueScript, numberScript, windowScript, stopScript, deadlinesScript, usageScript, positionScript, claimScript, startedScript,
		progressScript, renewScript, releaseScript, requeueScript, preemptScript, steerScript, adoptScript, inheritScript, beatScript,
		quitScript, sweepScript, cancelScript, cancelWaitingScript, rejectScript, admitScript, learnScript, splitScript, redoPartScript,
		measuredScript, durationsScript, finishScript, failWaitingScript, forgetScript, recountScript, expireScript, makeRoomScript,
		keepResultScript, writableScript, restoreScript, removeAgainScript, deliveredScript, takeCallbacksScript, settleCallScript,
		replayCallScript, waitingCallsScript, deadCallsScript,
	}
	require.Len(t, all, 45)
	var names []string
	for _, s := range all {
		if s.DeclaresKeys() {
			names = append(names, s.Name())
		}
	}
	slices.Sort(names)
	require.Equal(t, []string{
		"queue/beat", "queue/deadlines", "queue/durations", "queue/learn", "queue/measured", "queue/number", "queue/quit", "queue/stop", "queue/writable",
	}, names)
}
