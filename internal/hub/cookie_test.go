package hub

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A page that comes from an instance brings the cookie too. Scripts get none.
func TestPageOfAnInstanceBringsTheCookie(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.browser()
		resp := b.script().do("GET", "/", "")
		require.Empty(t, resp.Cookies())
		require.NoError(t, resp.Body.Close())
	})
}

// The cookie tells browsers apart. Somebody who reads the queue or Redis must not
// be able to use it.
func TestCookieIsNotStored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := withPage(t, 0)
		ann := b.browser()
		id := ann.submit(work(1, 1, "none"), "")
		j, err := b.hub.queue.Find(t.Context(), "default", id)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(j.Caller, "browser:"), j.Caller)
		require.NotContains(t, j.Caller, ann.cookie())
		require.NotContains(t, j.Caller, ann.cookie()[:16])
	})
}
