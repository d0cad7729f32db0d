package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The web UI's "Interrupt all running jobs" sends the ids of all listed jobs in
// one call. It stops only the caller's own jobs, while a call with one id means
// that prompt.
func TestSeveralIDsMeanOnesOwn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 3)
		ann, bob, script := b.browser(), b.browser(), b.script()
		mine, theirs := ann.submit(endless(1), "ann"), bob.submit(endless(2), "bob")
		ann.awaits(mine, "running")
		bob.awaits(theirs, "running")
		also := bob.submit(endless(3), "bob-other-tab")
		bob.awaits(also, "running")
		cancel := func(v *visitor, want bool, ids ...string) {
			t.Helper()
			status, body := v.send("POST", "/api/jobs/cancel", fmt.Sprintf(`{"job_ids": %s}`, jsonOf(t, ids)))
			require.Equal(t, http.StatusOK, status)
			require.JSONEq(t, fmt.Sprintf(`{"cancelled": %t}`, want), string(body))
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

// A page that is reloaded, or opened in another tab, has a new client id and the
// same cookie. The browser still owns what the first page posted.
func TestNewTab(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 2)
		ann, bob := b.browser(), b.browser()
		ann.connect("ann-first-tab")
		bob.connect("bob-tab")
		ended, hisEnded := ann.submit(work(1, 1, "none"), "ann-first-tab"), bob.submit(work(1, 2, "none"), "bob-tab")
		ann.awaits(ended, "done")
		bob.awaits(hisEnded, "done")
		running, theirs := ann.submit(endless(3), "ann-first-tab"), bob.submit(endless(4), "bob-tab")
		ann.awaits(running, "running")
		bob.awaits(theirs, "running")
		waiting, hisWaiting := ann.submit(endless(5), "ann-first-tab"), bob.submit(endless(6), "bob-tab")
		status, _ := ann.send("GET", "/", "")
		require.Equal(t, http.StatusOK, status)
		ann.connect("ann-second-tab")
		ann.posts("/history", `{"clear": true}`)
		ann.posts("/queue", `{"clear": true}`)
		ann.posts("/interrupt", "")
		ann.awaits(running, "cancelled")
		states := ann.states()
		require.NotContains(t, states, waiting)
		require.Equal(t, "running", states[theirs])
		require.Contains(t, states, hisWaiting)
		_, found := b.history(ended)
		require.False(t, found)
		_, found = b.history(hisEnded)
		require.True(t, found)
		bob.posts("/queue", `{"clear": true}`)
		bob.posts("/interrupt", "")
		bob.awaits(theirs, "cancelled")
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
		running := ann.submit(endless(1), "ann")
		ann.awaits(running, "running")
		for range 2 {
			bob.connect("bob")
			theirs := bob.submit(endless(2), "bob")
			bob.awaits(theirs, "running")
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
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
