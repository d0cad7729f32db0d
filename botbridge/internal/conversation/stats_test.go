package conversation

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// Operators see the last thirty days; nobody else sees anything.
func TestStats(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{Admins: []string{"telegram:5"}})
	ask := func(user, message string) platform.Post {
		r.sent()
		r.event(user, user, platform.Said, message, "/stats")
		posts, _ := r.sent()
		require.Len(t, posts, 1)
		return posts[0]
	}
	nothing := ask("5", "m1")
	require.Contains(t, nothing.Text, "0 active requests, ")
	require.NotContains(t, nothing.Text, "In 30 days")
	require.NotContains(t, ask("6", "m2").Text, "0 requests")

	n := 0
	ended := func(command, user string, outcome request.Outcome, ago, took time.Duration) {
		n++
		rec := request.NewRecord(request.IDOf(strconv.Itoa(n)))
		_, err := r.store.Requests.Create(r.ctx, rec.ID, &rec, state.Ask{Who: user})
		require.NoError(t, err)
		// What was asked on another day ended then: the store reckons from now.
		_, err = r.store.Requests.Finish(r.ctx, rec.ID, 1, &rec, state.End{
			Who: user, Asked: time.Now().Add(-ago - took), Command: command, Outcome: string(outcome), Done: outcome == request.Done,
		})
		require.NoError(t, err)
	}
	for i := range 19 {
		ended("generate", "telegram:"+strconv.Itoa(i%3), request.Done, 0, 10*time.Second)
	}
	ended("edit", "telegram:5", request.Done, 0, 20*time.Minute)
	ended("edit", "telegram:5", request.Failed, 48*time.Hour, 0)
	shown := ask("5", "m3")
	for _, want := range []string{
		"Last 30 days: 21 requests, 20 done, up to ", "people a day.", "Half took up to 1", "nearly all up to ", "/generate 19 · /edit 2",
	} {
		require.Contains(t, shown.Text, want)
	}
}
