package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// keys names the jobs of a line in their order.
func (l *waitLine) keys() (keys []string) {
	for _, j := range l.first() {
		keys = append(keys, j.Key)
	}
	return keys
}

func TestWaitLine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l waitLine
		join := func(key string, position int) { l.join(job.Job{Key: key}, position) }
		require.False(t, l.begin(), "nothing to read")
		join("a", 0)
		join("b", 1)
		join("c", 1)
		join("c", 0)
		require.Equal(t, []string{"a", "c", "b"}, l.keys(), "each once, where it was accepted")
		require.False(t, l.begin())

		join("far", 4+underWay)
		require.Equal(t, []string{"a", "c", "b"}, l.keys())
		require.True(t, l.begin(), "others are ahead that this hub does not know")
		require.False(t, l.begin(), "once")

		l.leave("c")
		join("c", 0)
		require.Equal(t, []string{"a", "b"}, l.keys(), "it was given out before the answer that it is accepted")

		l.heard()
		require.True(t, l.begin())
		l.leave("y")
		l.replace([]job.Job{{Key: "x"}, {Key: "y"}, {Key: "z"}})
		require.Equal(t, []string{"x", "z"}, l.keys(), "y has gone while the line was read")
		join("c", 0)
		require.Equal(t, []string{"c", "x", "z"}, l.keys(), "it may come back")
	})
}

// A job that was accepted while others went is not missing until the line is read again: a
// short one would not be seen behind a long one.
func TestWaitLineKeepsWhoComesWhileOthersGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l waitLine
		l.join(job.Job{Key: "a"}, 0)
		l.join(job.Job{Key: "b"}, 1)
		l.leave("a")
		l.join(job.Job{Key: "c"}, 2) // when it was accepted, a was still there
		require.Equal(t, []string{"b", "c"}, l.keys())
		require.True(t, l.begin(), "perhaps others are ahead that this hub does not know")
	})
}

// A job that is accepted while the line is read may be missing in what is read.
func TestWaitLineKeepsWhoComesWhileItIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l waitLine
		l.heard()
		require.True(t, l.begin())
		l.join(job.Job{Key: "new"}, 1)
		l.join(job.Job{Key: "seen"}, 0)
		l.join(job.Job{Key: "short"}, 0)
		l.leave("short")
		l.replace([]job.Job{{Key: "seen"}, {Key: "long"}})
		require.Equal(t, []string{"seen", "new", "long"}, l.keys())

		l.heard()
		require.True(t, l.begin())
		l.replace([]job.Job{{Key: "long"}})
		require.Equal(t, []string{"long"}, l.keys(), "the others have gone since")
		l.heard()
		require.True(t, l.begin())
		for n := range 10 * maxLine {
			l.join(job.Job{Key: fmt.Sprint(n)}, 0)
		}
		require.Len(t, l.came, maxLine)
	})
}

func TestWaitLineIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l waitLine
		for n := range 2 * maxLine {
			l.join(job.Job{Key: fmt.Sprint(n)}, min(n, maxLine))
		}
		require.Len(t, l.first(), maxLine)
		require.False(t, l.begin())
		l.leave("0")
		require.True(t, l.begin(), "there may be more behind")
		for n := range 100 * maxLine {
			l.leave(fmt.Sprint("gone", n))
		}
		require.LessOrEqual(t, len(l.gone), 10*maxLine+1)
	})
}

func TestRemaining(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, c := range []struct{ estimate, elapsed, want time.Duration }{
			{10 * time.Second, 0, 10 * time.Second},
			{10 * time.Second, 4 * time.Second, 6 * time.Second},
			{10 * time.Second, 10 * time.Second, time.Second},
			{10 * time.Second, time.Minute, 6 * time.Second},
		} {
			require.Equal(t, c.want, remaining(c.estimate, c.elapsed))
		}
	})
}
