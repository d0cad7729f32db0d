package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Excused jobs come back later each time, but sooner when only the instance was to
// blame.
func TestPausesOfExcusedJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		here, anywhere := result{kind: excused}, result{kind: excused, anywhere: true}
		for before, ms := range []int64{0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000} {
			require.Equal(t, ms, anywhere.pause(before).Milliseconds(), before)
			require.Equal(t, ms, here.pause(before+freeExcuses-1).Milliseconds(), before)
		}
		require.Zero(t, here.pause(0))
		require.Equal(t, longestPause, anywhere.pause(1<<40))
		require.Zero(t, result{kind: lost, anywhere: true}.pause(9))
	})
}

// A pass may begin while an instance has a job and end after the instance has given it back. Such a
// pass could not offer the job to another instance, so it dismisses nobody when it ends.
func TestDismissAfterAPassThatSawTheJob(t *testing.T) {
	t.Parallel()
	q := must(queue.New(redistest.Embedded(t), queue.Options{}))
	d := New(Config{Queue: q})
	accepted := must(q.Enqueue(t.Context(), queue.Submission{
		Key: uuid.NewString(), ID: "a", Requester: job.Requester{Tenant: "tenant"}, Class: "class", BodyHash: "hash", Door: time.Hour,
		Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"1"}},
	}))
	door := d.Doors.Open(accepted.Job.Key)
	defer door.Close()
	door.waited = true

	asked := d.Doors.awaited()
	claimed := must(q.Claim(t.Context(), queue.ClaimRequest{Key: door.key, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid"}))
	d.Doors.dismiss(t.Context(), asked)
	require.False(t, door.heard, "it is being asked")
	must(q.Requeue(t.Context(), claimed.Run, queue.RequeueOptions{Excused: true}))
	d.Doors.dismiss(t.Context(), asked)
	require.False(t, door.heard, "no pass has seen it since")
	require.Len(t, d.signal.ch, 1, "the next pass comes at once")
	d.Doors.dismiss(t.Context(), d.Doors.awaited())
	require.True(t, door.heard, "a whole pass found no instance for it")
}

// Each instance that is asked has its own time limit. A slow refusal does not
// shorten the time of the next instance.
func TestPatienceWithEachInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := New(Config{}).Doors.Open("a")
		defer door.Close()
		begun := time.Now()
		go func() {
			for range 3 {
				time.Sleep(90 * time.Millisecond)
				door.another()
			}
		}()
		door.Wait(t.Context(), 100*time.Millisecond)
		require.Equal(t, 370*time.Millisecond, time.Since(begun))
		go func() {
			for range 20 {
				time.Sleep(90 * time.Millisecond)
				door.another()
			}
		}()
		begun = time.Now()
		door.Wait(t.Context(), 100*time.Millisecond)
		require.Equal(t, time.Second, time.Since(begun), "however many refuse")
		time.Sleep(time.Second)
	})
}

// The messages of a run wait until its client has had a moment to read the answer.
func TestAnswerBeforeTheMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{})
		door := d.Doors.Open("a")
		begun := time.Now()
		go func() {
			time.Sleep(20 * time.Millisecond)
			door.Close()
			door.Close()
		}()
		d.Doors.of("a").taken(t.Context(), nil)
		require.Equal(t, 20*time.Millisecond+answerGap, time.Since(begun))
		require.Nil(t, d.Doors.of("a"), "nothing is kept")
	})
}
