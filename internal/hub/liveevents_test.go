package hub

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A socket with live events sees two jobs that run at the same time, at one hub or at two.
func TestLiveEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option bool
		query  string
	}{
		"handler option": {option: true},
		"query":          {query: "&events=live"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBench(t, 2, func(b *bench) { b.live = c.option })
				watchLive(t, b.dial("ann"+c.query), b, b)
			})
		})
		t.Run(name+" at another hub", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				one, two := newPair(t, 1, 1)
				two.live = c.option
				watchLive(t, two.dial("ann"+c.query), one, two)
			})
		})
	}
}

// watchLive runs two jobs at the same time and requires both to be seen before either ends.
func watchLive(t *testing.T, socket *client, at ...*bench) {
	t.Helper()
	open := map[string]bool{}
	for n, b := range at {
		open[b.submit(work(3600, n, "none"), "ann")] = true
	}
	seen := map[string]int{}
	for len(seen) < 2 || slices.Min(slices.Collect(maps.Values(seen))) < 3 {
		m := socket.next()
		require.True(t, open[m.Data.PromptID], m.raw)
		seen[m.Data.PromptID]++
	}
	for id := range open {
		status, _ := at[0].post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
		require.Equal(t, http.StatusOK, status)
	}
	last := map[string]string{}
	for len(open) > 0 {
		m := socket.next()
		id := m.Data.PromptID
		if m.Type == "executing" && m.Data.Node == nil {
			require.Equal(t, "execution_interrupted", last[id])
			delete(open, id)
		}
		last[id] = m.Type
	}
}
