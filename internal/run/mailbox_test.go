package run

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// What piles up for a run that is waiting for Redis is bounded: previews and progress go; what
// begins and ends things stays, in order.
func TestMailboxIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("much text, and one goroutine")
	}
	t.Parallel()
	text := func(kind, more string) runEvent {
		return runEvent{kind: frameArrived, frame: comfyui.Frame{Data: fmt.Appendf(nil, `{"type": %q, "data": {"prompt_id": "p", "x": %q}}`, kind, more)}}
	}
	fill := func(m *mailbox, e runEvent) {
		for range 3 * maxMail / len(e.frame.Data) {
			m.put(e)
			require.LessOrEqual(t, m.size, maxMail+len(e.frame.Data))
		}
	}
	kinds := func(m *mailbox) (kinds []string, gap bool) {
		for {
			e := must(m.next(t.Context(), time.Nanosecond))
			if e.kind == silence && len(m.events) == 0 {
				require.Zero(t, m.size)
				return kinds, gap
			}
			gap = gap || e.gap
			msg, _ := comfyui.ParseMessage(e.frame.Data)
			switch {
			case e.kind == cancelAsked:
				kinds = append(kinds, "cancel")
			case !e.frame.Binary && (len(kinds) == 0 || kinds[len(kinds)-1] != msg.Type):
				kinds = append(kinds, msg.Type)
			}
		}
	}
	long := strings.Repeat("x", 100_000)
	preview := runEvent{kind: frameArrived, frame: comfyui.Frame{Binary: true, Data: []byte(long)}}

	m := newMailbox()
	m.put(text("execution_start", ""))
	fill(m, text("progress_state", long))
	m.put(text("executed", ""))
	m.put(runEvent{kind: cancelAsked})
	fill(m, text("progress", long))
	m.put(text("execution_success", ""))
	got, gap := kinds(m)
	require.Equal(t, []string{"execution_start", "executed", "cancel", "progress", "execution_success"}, got)
	require.False(t, gap, "nothing was lost that a client misses")

	m.put(text("execution_start", ""))
	fill(m, preview)
	m.put(text("executed", ""))
	got, gap = kinds(m)
	require.Equal(t, []string{"execution_start", "executed"}, got)
	require.False(t, gap)

	m.put(text("execution_start", ""))
	m.put(text("of.a.node", long))
	fill(m, text("of.another.node", long))
	m.put(text("execution_error", ""))
	got, gap = kinds(m)
	require.Equal(t, []string{"execution_start", "of.another.node", "execution_error"}, got)
	require.True(t, gap)

	executed := text("executed", long)
	for range 3 * (2 * maxMail / len(long)) {
		m.put(executed) // all of these stay
	}
	require.Len(t, m.events, 3*(2*maxMail/len(long)))
}

// A picture that exists nowhere else is not dropped for being large, nor if there are several; an
// endless number of them is.
func TestMailboxKeepsResults(t *testing.T) {
	t.Parallel()
	executing := func(node string) runEvent {
		return runEvent{kind: frameArrived, frame: comfyui.Frame{Data: fmt.Appendf(nil, `{"type": "executing", "data": {"node": %q, "prompt_id": "p"}}`, node)}}
	}
	picture := runEvent{kind: frameArrived, frame: comfyui.Frame{Binary: true, Data: make([]byte, maxMail+1)}}
	pictures := func(m *mailbox) (n int, gap bool) {
		for len(m.events) > 0 {
			e := must(m.next(t.Context(), time.Nanosecond))
			if gap = gap || e.gap; e.frame.Binary {
				n++
			}
		}
		return n, gap
	}
	m := newMailbox()
	m.setResults([]string{"9"})
	m.put(picture)
	n, gap := pictures(m)
	require.Equal(t, 1, n, "nothing else waits")
	require.False(t, gap)

	m.put(executing("3"))
	m.put(picture)
	m.put(picture)
	m.put(executing("9"))
	m.put(picture)
	m.put(picture)
	n, gap = pictures(m)
	require.Equal(t, 2, n, "both results, and no preview")
	require.False(t, gap)

	for range 3 * maxResults / maxMail {
		m.put(picture)
		require.LessOrEqual(t, m.size, 2*maxResults)
	}
	_, gap = pictures(m)
	require.True(t, gap, "some were dropped")
}
