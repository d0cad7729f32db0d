package run

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// A run shows the progress of the nodes that only other parts run, and asks once for each look.
func TestOverheard(t *testing.T) {
	t.Parallel()
	var o overheard
	said := func(part, kind, data string) bool {
		text := `{"type": "` + kind + `", "data": ` + data + `}`
		m, ok := comfyui.ParseMessage([]byte(text))
		require.True(t, ok)
		return o.hear(part, m, []byte(text))
	}
	board := func(nodes string) string { return `{"prompt_id": "p", "nodes": {` + nodes + `}}` }
	own := `{"type": "progress_state", "data": ` + board(`"1": {"value": 1.0}`) + `}`
	require.Equal(t, own, string(o.join([]byte(own))), "nothing was heard")

	require.True(t, said("b", comfyui.TypeExecuting, `{"node": "2"}`))
	require.False(t, said("b", comfyui.TypeExecuting, `{"node": "3"}`), "the run was asked already")
	require.False(t, said("b", comfyui.TypeExecuting, `{"node": null}`))
	require.False(t, said("b", comfyui.TypeProgressState, board(`"1": {"value": 7}, "2": {"value": 2}`)), "the run itself will show it")
	require.False(t, said("c", comfyui.TypeProgressState, board(`"3": {"value": 3}`)))
	require.Empty(t, o.take(false), "the run's own message of what is cached comes first")
	require.Len(t, o.take(true), 2)
	require.Empty(t, o.take(true))
	require.Equal(t, `{"type": "progress_state", "data": `+board(`"1": {"value": 1.0}, "2": {"value": 2}, "3": {"value": 3}`)+`}`, string(o.join([]byte(own))))

	require.True(t, said("b", comfyui.TypeExecuting, `{"node": "5"}`))
	o.leave()
	require.Len(t, o.take(false), 1, "all of the run's own nodes were cached")
	require.True(t, said("c", comfyui.TypeProgressState, board(`"3": {"value": 4}`)))
	require.False(t, said("c", comfyui.TypeProgressState, board(`"3": {"value": 5}`)))
	require.Contains(t, string(o.join([]byte(own))), `"value": 5`)
	for _, odd := range []string{``, `[]`, `{"data": {}}`} {
		require.Equal(t, odd, string(o.join([]byte(odd))))
	}
	for range 2 * maxOverheard {
		said("c", comfyui.TypeExecuting, `{"node": "4"}`)
	}
	require.Len(t, o.take(true), maxOverheard)

	long := strings.Repeat("x", maxBoard)
	require.False(t, said("c", comfyui.TypeExecuting, `{"node": "`+long+`"}`))
	require.False(t, said("c", comfyui.TypeProgressState, board(`"`+long+`": {}`)), "nor is a message without end kept")
	require.Empty(t, o.take(true))
	require.Contains(t, string(o.join([]byte(own))), `"value": 5`)
}

// A machine that names nodes without end does not have its run remember them.
func TestEnteredIsBounded(t *testing.T) {
	t.Parallel()
	r := showing{&Run{}}
	for n := range 2 * maxOverheard {
		r.enter(strconv.Itoa(n))
	}
	require.Len(t, r.entered, maxOverheard)
}
