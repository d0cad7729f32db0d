package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// keys returns the keys of the jobs in a line, in order.
func (l *waitLine) keys() (keys []string) {
	for _, j := range l.first() {
		keys = append(keys, j.Key)
	}
	return keys
}

func TestWaitLine(t *testing.T) {
	t.Parallel()
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
}

// A job that was accepted while others left is not missing until the line is read again: a short
// one would not be seen behind a long one.
func TestWaitLineKeepsWhoComesWhileOthersGo(t *testing.T) {
	t.Parallel()
	var l waitLine
	l.join(job.Job{Key: "a"}, 0)
	l.join(job.Job{Key: "b"}, 1)
	l.leave("a")
	l.join(job.Job{Key: "c"}, 2) // when it was accepted, a was still there
	require.Equal(t, []string{"b", "c"}, l.keys())
	require.True(t, l.begin(), "perhaps others are ahead that this hub does not know")
}

// A job that is accepted while the line is being read may be missing from what is read.
func TestWaitLineKeepsWhoComesWhileItIsRead(t *testing.T) {
	t.Parallel()
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
}

func TestWaitLineIsBounded(t *testing.T) {
	t.Parallel()
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
}

// The first job in line is known without a look only right after it was accepted with none ahead of
// it.
func TestFirstInLine(t *testing.T) {
	t.Parallel()
	q := must(queue.New(redistest.Embedded(t), queue.Options{}))
	d := New(Config{Queue: q, Logger: slog.New(slog.DiscardHandler)})
	accept := func() (job.Job, int) {
		s := submission(picture)
		s.Key = uuid.NewString()
		a := must(q.Enqueue(t.Context(), s))
		return a.Job, a.Position
	}
	_, known := d.placer.firstInLine(t.Context())
	require.False(t, known, "nothing has come")

	first, position := accept()
	d.Arrived(first, position)
	got, known := d.placer.firstInLine(t.Context())
	require.True(t, known)
	require.Equal(t, first, got)
	require.NotEmpty(t, d.requirements.met[first.Class], "what it needs is known")
	_, known = d.placer.firstInLine(t.Context())
	require.False(t, known, "it is offered once")

	second, position := accept()
	require.Equal(t, 1, position)
	d.Arrived(second, position)
	_, known = d.placer.firstInLine(t.Context())
	require.False(t, known, "another one waits before it")

	d.Arrived(first, 0)
	d.Arrived(second, 1)
	_, known = d.placer.firstInLine(t.Context())
	require.False(t, known, "there is another one, which may have a better place")

	d.Arrived(first, 0)
	d.signal.Wake()
	_, known = d.placer.firstInLine(t.Context())
	require.False(t, known, "something else has happened")

	first.Class = "of another hub"
	d.Arrived(first, 0)
	_, known = d.placer.firstInLine(t.Context())
	require.False(t, known, "nobody knows what it needs")
}

// The hub says when an instance will be free only if it knows how long its runs take.
func TestFree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		b.connects(2)
		key := b.submit(endless, withShape(shapeOf(b, endless)))
		b.runs(key)
		busy := b.at(key).name
		free := func() time.Duration {
			return b.Forecasts.From(t.Context(), job.Job{State: job.Queued, Class: "class"}).Free(busy)
		}
		require.Equal(t, time.Duration(-1), free())
		b.learn(endless, time.Hour)
		require.InDelta(t, time.Hour, free(), float64(time.Minute))
		for _, i := range b.instances {
			if i.name != busy {
				require.Zero(t, b.Forecasts.From(t.Context(), job.Job{State: job.Queued, Class: "class"}).Free(i.name))
			}
		}
		require.Equal(t, time.Duration(-1), b.Forecasts.From(t.Context(), job.Job{}).Free("nobody"))
		b.cancels(key)
	})
}

// While somebody looks ahead, perhaps with a round trip, whoever has accepted another job can leave.
func TestWaitForTheForecast(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		f := &Forecasts{last: lastOutlook{turn: semaphore.NewWeighted(1)}}
		require.NoError(t, f.last.turn.Acquire(t.Context(), 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.EqualValues(t, -1, f.Accepted(ctx, job.Job{}, -1))
	})
}
