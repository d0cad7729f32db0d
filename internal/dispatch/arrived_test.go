package dispatch

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Which job is the first in line is known without a look only right after it was accepted with
// none ahead of it.
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
	_, known := d.firstInLine(t.Context())
	require.False(t, known, "nothing has come")

	first, position := accept()
	d.Arrived(first, position)
	got, known := d.firstInLine(t.Context())
	require.True(t, known)
	require.Equal(t, first, got)
	require.NotEmpty(t, d.classes[first.Class], "what it needs is known")
	_, known = d.firstInLine(t.Context())
	require.False(t, known, "it is offered once")

	second, position := accept()
	require.Equal(t, 1, position)
	d.Arrived(second, position)
	_, known = d.firstInLine(t.Context())
	require.False(t, known, "another one waits before it")

	d.Arrived(first, 0)
	d.Arrived(second, 1)
	_, known = d.firstInLine(t.Context())
	require.False(t, known, "there is another one, which may have a better place")

	d.Arrived(first, 0)
	d.Wake()
	_, known = d.firstInLine(t.Context())
	require.False(t, known, "something else has happened")

	first.Class = "of another hub"
	d.Arrived(first, 0)
	_, known = d.firstInLine(t.Context())
	require.False(t, known, "nobody knows what it needs")
}
