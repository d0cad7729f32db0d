package stream

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func queued(k Kind, s string) item {
	return item{frame: &frame{kind: k, data: []byte(s), size: int64(len(s))}}
}

// drain pops everything.
func drain(q *queue) (got []string) {
	r := &recorder{}
	for {
		it, ok := q.pop()
		if !ok {
			return r.words
		}
		r.out(it)
	}
}

func TestQueueShedsBeforeItRefuses(t *testing.T) {
	t.Parallel()
	q := queue{limit: 8 * (frameOverhead + 2)}
	for i := range 2 {
		require.True(t, q.push(queued(Progress, fmt.Sprint("p", i))))
		require.True(t, q.push(queued(ProgressState, fmt.Sprint("s", i))))
		require.True(t, q.push(queued(Preview, fmt.Sprint("i", i))))
		require.True(t, q.push(queued(Other, fmt.Sprint("o", i))))
	}
	require.True(t, q.push(queued(Result, "r0")), "the old previews and progress make room")
	require.Equal(t, 6, q.len())
	require.True(t, q.push(item{status: true}))
	require.True(t, q.push(queued(Other, "o2")))
	require.False(t, q.push(queued(Other, "o3")))
	require.Equal(t, words("o0", "p1", "s1", "i1", "o1", "r0", "status", "o2"), drain(&q))
	require.Zero(t, q.memory)
}

func TestQueueTakesOneOfAnySize(t *testing.T) {
	t.Parallel()
	q := queue{limit: 10}
	require.True(t, q.push(queued(Result, "far beyond the limit")))
	require.False(t, q.push(queued(Other, "x")))
	require.Equal(t, words("far beyond the limit"), drain(&q))
	require.True(t, q.push(queued(Other, "x")))
}

func TestQueueKeepsItsOrderForLong(t *testing.T) {
	t.Parallel()
	q := queue{limit: 1 << 30}
	next := 0
	for i := range 20_000 {
		require.True(t, q.push(queued(Other, fmt.Sprint(i))))
		if i%3 != 0 {
			it, ok := q.pop()
			require.True(t, ok)
			require.Equal(t, fmt.Sprint(next), string(it.frame.data))
			next++
		}
	}
	require.Len(t, drain(&q), 20_000-next)
	require.LessOrEqual(t, len(q.items), 1, "an empty queue keeps nothing")
	q.push(queued(Other, "x"))
	q.clear()
	require.Zero(t, q.memory)
	require.Zero(t, q.len())
}
