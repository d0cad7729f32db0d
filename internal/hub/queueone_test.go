package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// listings are what the two APIs list as running and waiting.
type listings struct{ running, pending []string }

// listed reads both APIs for a client and compares them.
func (b *bench) listed(client string) listings {
	b.t.Helper()
	_, body := b.get("/queue?clientId=" + client)
	var queue map[string][][]json.RawMessage
	require.NoError(b.t, json.Unmarshal(body, &queue))
	ids := func(list [][]json.RawMessage) []string {
		out := []string{}
		for _, item := range list {
			out = append(out, string(item[1][1:len(item[1])-1]))
		}
		return out
	}
	l := listings{ids(queue["queue_running"]), ids(queue["queue_pending"])}
	for word, want := range map[string][]string{"in_progress": l.running, "pending": l.pending, "pending,in_progress": slices.Concat(l.running, l.pending)} {
		_, body := b.get("/api/jobs?status=" + word + "&clientId=" + client)
		var jobs struct {
			Jobs       []struct{ ID, Status string }
			Pagination struct{ Total int }
		}
		require.NoError(b.t, json.Unmarshal(body, &jobs))
		got := []string{}
		for _, j := range jobs.Jobs {
			got = append(got, j.ID)
			_, body := b.get("/api/jobs/" + j.ID + "?clientId=" + client)
			require.Contains(b.t, string(body), fmt.Sprintf(`"status": %q`, j.Status))
		}
		require.ElementsMatch(b.t, want, got, word)
		require.Equal(b.t, len(want), jobs.Pagination.Total)
	}
	return l
}

// A site that lists only one running prompt does so everywhere, and lists for each
// caller one of its own. A prompt that is listed as waiting can be deleted and
// cleared like one.
func TestQueueOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 3, func(b *bench) { b.one = true })
		require.Empty(t, b.listed("ann").running)
		first := b.submit(endless(1), "ann")
		// The hub shows the prompt that has run for longest. A prompt whose start the hub
		// has not heard of does not count, even if the instance works on it.
		runs := func(id string) {
			t.Helper()
			eventually(t, func() bool {
				j, err := b.hub.queue.Find(t.Context(), job.DefaultTenant, id)
				return err == nil && j.State == job.Running
			}, time.Minute, time.Millisecond)
		}
		runs(first)
		second := b.submit(endless(2), "ann")
		runs(second)
		other := b.submit(endless(3), "bob")
		runs(other)
		waiting := b.submit(endless(4), "ann")
		require.Equal(t, []string{first}, b.listed("ann").running)
		require.ElementsMatch(t, []string{second, waiting, other}, b.listed("ann").pending)
		require.Equal(t, []string{other}, b.listed("bob").running)
		require.Equal(t, []string{first}, b.listed("carol").running, "who has none sees the one that has run for longest")
		_, body := b.get("/prompt?clientId=ann")
		require.JSONEq(t, `{"exec_info": {"queue_remaining": 3}}`, string(body))

		// Cancel everything the way plugins that read the listing do.
		list, err := json.Marshal([]string{second, waiting})
		require.NoError(t, err)
		b.posts("/queue", fmt.Sprintf(`{"delete": %s, "client_id": "ann"}`, list))
		require.Equal(t, listings{[]string{first}, []string{other}}, b.listed("ann"))
		b.posts("/interrupt", `{"client_id": "ann"}`)
		require.Equal(t, "error", b.finished(first).Status.Text)
		require.Equal(t, listings{[]string{other}, []string{}}, b.listed("ann"))

		// Cancelling a prompt listed as waiting through the new API leaves no trace.
		third := b.submit(endless(5), "bob")
		runs(third)
		status, body := b.post("/api/jobs/"+third+"/cancel?clientId=bob", "")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"cancelled": true}`, string(body))
		require.Equal(t, listings{[]string{other}, []string{}}, b.listed("bob"))

		// A clear removes what is listed as waiting, but only the caller's own.
		fourth := b.submit(endless(6), "ann")
		runs(fourth)
		fifth := b.submit(endless(7), "bob")
		require.ElementsMatch(t, []string{fourth, fifth}, b.listed("bob").pending)
		b.posts("/queue", `{"clear": true, "client_id": "bob"}`)
		require.Equal(t, listings{[]string{other}, []string{fourth}}, b.listed("bob"))
		// A prompt listed as waiting can be deleted, even though its own client sees it run.
		b.posts("/queue", fmt.Sprintf(`{"delete": [%q], "client_id": "bob"}`, fourth))
		require.Equal(t, "error", b.finished(fourth).Status.Text)
		b.posts("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, other))
		require.Equal(t, "error", b.finished(other).Status.Text)
		for _, id := range []string{second, waiting, third, fifth} {
			_, found := b.history(id)
			require.False(t, found)
		}
	})
}
