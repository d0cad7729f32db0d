package stream

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder writes down what a line sends to its socket, one word per item.
type recorder struct{ words []string }

func (r *recorder) out(it item) {
	switch {
	case it.probe != 0: // clients do not see it
	case it.status:
		r.words = append(r.words, "status")
	case it.mark != 0:
		r.words = append(r.words, fmt.Sprintf("ping%d", it.mark))
	case it.frame.data == nil:
		data, err := it.frame.load()
		if err != nil {
			panic(err)
		}
		r.words = append(r.words, "disk:"+string(data))
	default:
		r.words = append(r.words, string(it.frame.data))
	}
}

// take returns what was sent since the last take.
func (r *recorder) take() []string {
	words := r.words
	r.words = nil
	return words
}

func null(prompt string) string {
	return `{"type": "executing", "data": {"node": null, "prompt_id": "` + prompt + `"}}`
}

// closing is how a sequence ends on the wire.
func closing(prompt string, mark int) []string {
	return []string{"status", null(prompt), fmt.Sprintf("ping%d", mark)}
}

func words(parts ...any) (all []string) {
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			all = append(all, part)
		case []string:
			all = append(all, part...)
		}
	}
	return all
}

func testLine() *line {
	return &line{buffer: buffer{limits: lineLimits{hold: 1 << 20, spill: 1 << 20}}}
}

// openLine is a line with a socket.
func openLine() (*line, *recorder) {
	l, r := testLine(), &recorder{}
	l.attach(r.out, false)
	return l, r
}

func prompts(received []*sequence) (names []string) {
	for _, q := range received {
		names = append(names, q.prompt)
	}
	return names
}

func other(s string) Message { return Message{Data: []byte(s)} }

func message(k Kind, s string) Message {
	return Message{Kind: k, Data: []byte(s), Binary: k == Preview || k == Result}
}

func TestSameRunBeginsOnce(t *testing.T) {
	t.Parallel()
	l := testLine()
	a := l.begin("a", 1)
	require.Same(t, a, l.begin("a", 1))
	require.NotSame(t, a, l.begin("a", 2), "two jobs may have one id")
}

func TestHeldMessagesShrink(t *testing.T) {
	t.Parallel()
	l, r := openLine()
	a, b := l.begin("a", 1), l.begin("b", 1)
	for _, m := range []Message{
		other("start"), message(ProgressState, "s1"), message(Executing, "executing 1"),
		message(Preview, "p1"), message(Progress, "1/3"),
		message(Result, "r1"), message(Result, "r2"),
		message(ProgressState, "s2"), message(Preview, "p2"), message(Progress, "2/3"),
		message(Executing, "executing 2"), other("executed 2"), message(ProgressState, "s3"),
	} {
		l.send(b, m)
	}
	l.end(a, nil)
	require.Equal(t, words(closing("a", 1), "start", "executing 1", "r1", "r2", "p2", "2/3",
		"executing 2", "executed 2", "s3"), r.take())
}

func TestOpenMessagesDoNotShrink(t *testing.T) {
	t.Parallel()
	l, r := openLine()
	a := l.begin("a", 1)
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprint(i), fmt.Sprint("s", i))
		l.send(a, message(Progress, fmt.Sprint(i)))
		l.send(a, message(ProgressState, fmt.Sprint("s", i)))
	}
	require.Equal(t, want, r.take())
	require.Less(t, len(a.log.frames), 100, "the log does shrink")
	l.attach(r.out, false)
	require.Equal(t, words("199", "s199"), r.take())
}

func TestBackAfterTheWindow(t *testing.T) {
	t.Parallel()
	l, r := testLine(), &recorder{}
	a, b := l.begin("a", 1), l.begin("b", 1)
	for _, m := range []Message{
		other("a start"), message(ProgressState, "s1"), message(Executing, "executing 1"), other("executed 1"),
		message(Executing, "executing 2"), message(Preview, "p"), message(ProgressState, "s2"), message(Result, "r"),
	} {
		l.send(a, m)
	}
	l.send(b, other("b start"))
	l.send(b, other("b executed"))
	l.ended(Attempt{Prompt: "x"}, []Message{other("x start")})
	l.forget()
	l.send(a, message(ProgressState, "s3"))
	l.send(a, message(Executing, "executing 3"))

	l.attach(r.out, false)
	require.Equal(t, words("executing 3", "s3"), r.take(), "as ComfyUI does; x is in /history")
	l.send(a, other("executed 3"))
	l.send(b, message(Executing, "b executing 1"))
	l.end(a, []Message{other("a success")})
	require.Equal(t, words("executed 3", "a success", closing("a", 1), "b start", "b executing 1"), r.take(),
		"b was never shown, so it begins with its start")
}

// A prompt that was posted again before its end was confirmed is on its way already.
func TestWhatIsOwed(t *testing.T) {
	t.Parallel()
	l, r := openLine()
	require.False(t, l.lists.owes("a", "job a"))
	a := l.begin("a", 1)
	a.job = "job a"
	require.True(t, l.lists.owes("a", "job a"), "it is still to come")
	require.False(t, l.lists.owes("a", "job b"), "another one of the same id")
	l.end(a, nil)
	require.True(t, l.lists.owes("a", "job a"))
	require.Equal(t, words(closing("a", 1)), r.take())
	l.confirm(1)
	require.False(t, l.lists.owes("a", "job a"), "received, so no longer kept")
	l.ended(Attempt{Prompt: "a"}, []Message{other("from the history")})
	require.True(t, l.lists.owes("a", "job a"))
}

func TestClear(t *testing.T) {
	t.Parallel()
	l := testLine()
	a := l.begin("a", 1)
	l.send(a, other("start"))
	l.ended(Attempt{Prompt: "x"}, nil)
	l.drop(func(*sequence) bool { return true })
	require.True(t, l.lists.empty())
	require.Zero(t, l.buffer.memory)
	l.send(a, other("late"))
	require.Zero(t, l.buffer.memory)
}
