package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// shapeOf returns the shape of a graph, and withShape submits one.
func shapeOf(t *testing.T, b *dispatching, graph string) string {
	t.Helper()
	v := must(pyjson.Parse([]byte(graph)))
	return Shape(v)
}

func withShape(shape string) func(*queue.Submission) {
	return func(s *queue.Submission) { s.Shape = shape }
}

// learn makes the hub believe that a graph ran for some time.
func (b *dispatching) learn(graph string, took time.Duration) {
	b.t.Helper()
	s, ok := schedule.DecodeStructure(shapeOf(b.t, b, graph))
	require.True(b.t, ok)
	gpu := b.reports.Gpu(b.instances[0].name)
	b.durations.add(schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: gpu}, schedule.Sample{Work: s.Work, Ran: took})
}

// A job whose structure took much less time so far runs before one that has waited longer.
func TestShortJobRunsFirst(t *testing.T) {
	sideBySide(t, map[string]time.Duration{"short first": time.Hour, "as they come": 0}, func(t *testing.T, bound time.Duration) {
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.ShortFirst = bound })
		own := func(s *queue.Submission) { s.Client, s.Caller = s.Key, s.Key } // a client of its own
		b.learn(endless, 2*time.Minute)
		b.learn(picture, 4*time.Second)
		first := b.submit(endless, withShape(shapeOf(t, b, endless)), own)
		b.runs(first)
		long := b.submit(endless, withShape(shapeOf(t, b, endless)), own)
		short := b.submit(picture, withShape(shapeOf(t, b, picture)), own)
		eventually(t, func() bool { return len(b.line.first()) == 2 }, deadline, 10*time.Millisecond)
		b.Runs.Cancel(first)
		if bound > 0 {
			b.reaches(short, job.Done)
			b.runs(long)
			require.Greater(t, b.Job(long).StartedAt, b.Job(short).StartedAt)
			require.Contains(t, b.logged(), `why="takes less time than others before it"`)
		} else {
			b.runs(long)
			require.Equal(t, job.Queued, b.Job(short).State)
		}
		b.Runs.Cancel(long)
		b.reaches(long, job.Cancelled)
		b.reaches(short, job.Done)
	})
}
