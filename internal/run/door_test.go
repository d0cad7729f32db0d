package run

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// woken is a dispatcher that counts how often it is woken.
type woken struct{ times int }

func (w *woken) Wake()                { w.times++ }
func (w *woken) WakeIn(time.Duration) { w.times++ }
func (w *woken) Freed()               { w.times++ }

// A pass may begin while an instance has a job and end after the instance has given it back. Such a
// pass could not offer the job to another instance, so it dismisses nobody when it ends.
func TestDismissAfterAPassThatSawTheJob(t *testing.T) {
	t.Parallel()
	q := must(queue.New(redistest.Embedded(t), queue.Options{}))
	signal := &woken{}
	doors := NewDoors(q, NewRuns(), signal)
	accepted := must(q.Enqueue(t.Context(), queue.Submission{
		Key: uuid.NewString(), ID: "a", Requester: job.Requester{Tenant: "tenant"}, Class: "class", BodyHash: "hash", Door: time.Hour,
		Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Outputs: []string{"1"}},
	}))
	door := doors.Open(accepted.Job.Key)
	defer door.Close()
	door.waited = true

	asked := doors.Awaited()
	claimed := must(q.Claim(t.Context(), queue.ClaimRequest{Key: door.key, Instance: "gpu", Hub: "hub/1", Upstream: uuid.NewString(), SID: "sid"}))
	doors.Dismiss(t.Context(), asked)
	require.False(t, door.heard, "it is being asked")
	must(q.Requeue(t.Context(), claimed.Run, queue.RequeueOptions{Excused: true}))
	doors.Dismiss(t.Context(), asked)
	require.False(t, door.heard, "no pass has seen it since")
	require.Equal(t, 1, signal.times, "the next pass comes at once")
	doors.Dismiss(t.Context(), doors.Awaited())
	require.True(t, door.heard, "a whole pass found no instance for it")
}

// Each instance that is asked has its own time limit. A slow refusal does not
// shorten the time of the next instance.
func TestPatienceWithEachInstance(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		door := NewDoors(nil, NewRuns(), &woken{}).Open("a")
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
	beside.Bubble(t, func(t *testing.T) {
		doors := NewDoors(nil, NewRuns(), &woken{})
		door := doors.Open("a")
		begun := time.Now()
		go func() {
			time.Sleep(20 * time.Millisecond)
			door.Close()
			door.Close()
		}()
		doors.of("a").taken(t.Context(), nil)
		require.Equal(t, 20*time.Millisecond+answerGap, time.Since(begun))
		require.Nil(t, doors.of("a"), "nothing is kept")
	})
}
