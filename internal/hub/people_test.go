package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// The web UI's "Interrupt all running jobs" sends the ids of all listed jobs in one call. It stops
// only the caller's own jobs, while a call with one id means that prompt.
func TestSeveralIDsMeanOnesOwn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 3)
		ann, bob, script := b.browser(), b.browser(), b.script()
		mine, theirs := ann.submit(endless(1), "ann"), bob.submit(endless(2), "bob")
		ann.awaits(mine, "running")
		bob.awaits(theirs, "running")
		also := bob.submits(endless(3), "bob-other-tab", "running")
		cancel := func(v *visitor, want bool, ids ...string) {
			t.Helper()
			require.JSONEq(t, fmt.Sprintf(`{"cancelled": %t}`, want), string(v.sends("POST", "/api/jobs/cancel", fmt.Sprintf(`{"job_ids": %s}`, jsonOf(t, ids)))))
		}
		cancel(b.browser(), false, mine, theirs, also) // none of them belongs to this client
		require.Equal(t, map[string]string{mine: "running", theirs: "running", also: "running"}, ann.states())
		waiting, hisWaiting := ann.submit(endless(4), "ann"), bob.submit(endless(5), "bob")
		ann.posts("/queue", fmt.Sprintf(`{"delete": [%q, %q]}`, waiting, hisWaiting))
		require.NotContains(t, ann.states(), waiting)
		require.Equal(t, "queued", ann.states()[hisWaiting], "several ids in a delete, too")
		ann.posts("/queue", fmt.Sprintf(`{"delete": [%q]}`, hisWaiting))
		require.NotContains(t, ann.states(), hisWaiting)

		cancel(bob, true, mine, theirs, also)
		bob.awaits(theirs, "cancelled")
		bob.awaits(also, "cancelled")
		require.Equal(t, "running", ann.states()[mine])
		cancel(bob, true, mine)
		ann.awaits(mine, "cancelled")

		// Scripts mean what they send.
		one, two := ann.submit(endless(6), "ann"), bob.submit(endless(7), "bob")
		ann.awaits(one, "running")
		bob.awaits(two, "running")
		cancel(script, true, one, two)
		ann.awaits(one, "cancelled")
		bob.awaits(two, "cancelled")
	})
}

// A browser that keeps no cookies is offered one with each socket. Its address and
// program still identify it, even after its socket reconnects, and browsers with a
// cookie are not mistaken for it.
func TestBrowserWithoutCookies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 2)
		ann, bob := b.browser(), &visitor{b: b, http: &http.Client{}, page: true}
		ann.connect("ann")
		running := ann.submits(endless(1), "ann", "running")
		for range 2 {
			bob.connect("bob")
			theirs := bob.submits(endless(2), "bob", "running")
			bob.connect("bob")
			waiting := ann.submit(endless(3), "ann")
			hisWaiting := bob.submit(endless(4), "bob")
			bob.connect("bob")
			bob.posts("/queue", `{"clear": true}`)
			require.NotContains(t, bob.states(), hisWaiting)
			require.Contains(t, bob.states(), waiting)
			ann.posts("/queue", `{"clear": true}`)
			require.NotContains(t, bob.states(), waiting)
			bob.posts("/interrupt", "")
			bob.awaits(theirs, "cancelled")
			require.Equal(t, "running", ann.states()[running])
		}
		ann.posts("/interrupt", "")
		ann.awaits(running, "cancelled")
	})
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	return string(must(json.Marshal(v))(t))
}

// The cookie tells browsers apart. Somebody who reads the queue or Redis must not
// be able to use it.
func TestCookieIsNotStored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 0)
		ann := b.browser()
		id := ann.submit(work(1, 1, "none"), "")
		j := must(b.hub.Queue.Find(t.Context(), "default", id))(t)
		require.True(t, strings.HasPrefix(j.Caller, "browser:"), j.Caller)
		require.NotContains(t, j.Caller, ann.cookie())
		require.NotContains(t, j.Caller, ann.cookie()[:16])
	})
}

// listings are what the two APIs list as running and waiting.
type listings struct{ running, pending []string }

// listed reads both APIs for a client and compares them.
func (b *bench) listed(client string) listings {
	b.t.Helper()
	_, body := b.get("/queue?clientId=" + client)
	queue := decoded[map[string][][]json.RawMessage](b.t, body)
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
		jobs := decoded[struct {
			Jobs       []struct{ ID, Status string }
			Pagination struct{ Total int }
		}](b.t, body)
		got := []string{}
		for _, j := range jobs.Jobs {
			got = append(got, j.ID)
			require.Contains(b.t, b.text("/api/jobs/"+j.ID+"?clientId="+client), fmt.Sprintf(`"status": %q`, j.Status))
		}
		require.ElementsMatch(b.t, want, got, word)
		require.Equal(b.t, len(want), jobs.Pagination.Total)
	}
	return l
}

// A site that lists only one running prompt does so everywhere, and lists for each caller one of
// its own. A prompt that is listed as waiting can be deleted and cleared like one.
func TestQueueOne(t *testing.T) {
	inBench(t, benchOf(3, func(b *bench) { b.one = true }), func(t *testing.T, b *bench) {
		require.Empty(t, b.listed("ann").running)
		first := b.submit(endless(1), "ann")
		// The hub shows the prompt that has run for longest. A prompt whose start the hub
		// has not heard of does not count, even if the instance works on it.
		runs := func(id string) {
			t.Helper()
			eventually(t, func() bool {
				j, err := b.hub.Queue.Find(t.Context(), job.DefaultTenant, id)
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
		list := must(json.Marshal([]string{second, waiting}))(t)
		b.posts("/queue", fmt.Sprintf(`{"delete": %s, "client_id": "ann"}`, list))
		require.Equal(t, listings{[]string{first}, []string{other}}, b.listed("ann"))
		b.posts("/interrupt", `{"client_id": "ann"}`)
		require.Equal(t, "error", b.finished(first).Status.Text)
		require.Equal(t, listings{[]string{other}, []string{}}, b.listed("ann"))

		// Cancelling a prompt listed as waiting through the new API leaves no trace.
		third := b.submit(endless(5), "bob")
		runs(third)
		body = b.posts("/api/jobs/"+third+"/cancel?clientId=bob", "")
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

// A bot has a client id for each of its users, and names none when it counts, clears and
// interrupts: that concerns everything it has posted, however many ids it used, and even after the
// hub has restarted.
func TestBotWithManyClients(t *testing.T) {
	const users = 60
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 1)
		bot, other := b.script(), b.browser()
		other.submits(work(1, 0, "none"), "other", "done")
		mine := map[string]bool{}
		running := ""
		for n := range users {
			id := bot.submit(endless(n), fmt.Sprint("user ", n))
			if n == 0 {
				bot.awaits(id, "running")
				running = id
			}
			mine[id] = true
		}
		theirs := other.submit(endless(users), "other")
		type item = []json.RawMessage
		first := func() []string {
			queue := decoded[struct {
				Pending []item `json:"queue_pending"`
			}](t, bot.sends("GET", "/queue", ""))
			var ids []string
			for _, i := range queue.Pending[:users-1] {
				var id string
				require.NoError(t, json.Unmarshal(i[1], &id))
				ids = append(ids, id)
			}
			return ids
		}
		for range 2 {
			require.Equal(t, users, bot.count())
			require.Equal(t, 1, other.count())
			for _, id := range first() {
				require.True(t, mine[id], "what others have posted comes behind")
			}
			b.stop()
			b.start()
			b.connected(1)
			bot.awaits(running, "running")
		}
		bot.posts("/queue", `{"clear": true}`)
		require.Equal(t, 1, bot.count())
		bot.posts("/interrupt", "")
		bot.awaits(running, "cancelled")
		other.awaits(theirs, "running")
		bot.posts("/history", `{"clear": true}`)
		require.NotContains(t, bot.states(), running)
		require.Equal(t, 0, bot.count())
		require.NoError(t, b.hub.Canceller.Stop(t.Context(), must(b.hub.Jobs.FindLive(t.Context(), job.DefaultTenant, theirs))(t)))
	})
}
