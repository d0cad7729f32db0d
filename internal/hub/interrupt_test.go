package hub

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// TestInterruptBetweenClaimAndStart interrupts jobs as soon as their clients can
// see them run. An instance ignores an interrupt for a prompt that it has not
// begun.
func TestInterruptBetweenClaimAndStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		for n := range 20 {
			id := b.submit(endless(n), "ann")
			eventually(t, func() bool {
				j, err := b.hub.queue.Find(t.Context(), job.DefaultTenant, id)
				return err == nil && j.State != job.Queued
			}, time.Minute, 100*time.Microsecond)
			status, _ := b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
			require.Equal(t, http.StatusOK, status)
			e := b.finished(id)
			last := e.Status.Messages[len(e.Status.Messages)-1]
			require.JSONEq(t, `"execution_interrupted"`, string(last[0]), "attempt %d", n)
		}
	})
}

// The request to end a job can arrive after its claim and before anybody listens
// for it. The run must see it when it begins, not when it next renews its lease.
func TestWishBeforeTheRunListens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.instances[0].die()
		eventually(t, func() bool { return stateOf(b, b.instances[0]) == fleet.Offline }, time.Minute, time.Millisecond)
		id := b.submit(endless(1), "ann")
		j, err := b.hub.queue.Find(t.Context(), job.DefaultTenant, id)
		require.NoError(t, err)
		require.Equal(t, job.Queued, j.State)
		require.NoError(t, b.hub.db.Client().HSet(t.Context(), b.hub.db.Key("q", "job", j.Key), "cancel", "1").Err())
		b.instances[0].revive()
		e := b.finished(id)
		last := e.Status.Messages[len(e.Status.Messages)-1]
		require.JSONEq(t, `"execution_interrupted"`, string(last[0]))
	})
}

// A prompt that is posted twice under one id is one job, even though the hub
// stamps each post with its time.
func TestStampIsNoPartOfTheHash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.instances = append(b.instances, recentInstance(t)) })
		for range 3 {
			b.postAs("same", "ann", picture(7))
		}
		e := b.finished("same")
		require.Contains(t, string(e.Prompt[3]), `"create_time": `)
		require.Equal(t, 1, started(b))
	})
}
