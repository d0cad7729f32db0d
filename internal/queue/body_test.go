package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The hub that accepted a prompt and has its run does not ask Redis for the body. Every
// other hub does, and so does this one when the run is over.
func TestBodyOfOnesOwnRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, other := on(t, redistest.Open(t, server.URL()), queue.Options{}), on(t, redistest.Open(t, server.URL()), queue.Options{})
	j := b.enqueue("id")
	want := must(other.Body(t.Context(), j.Key))
	claimed := b.claim(j, "gpu1")
	require.NoError(t, b.db.Client().Del(t.Context(), b.db.Key("q", "body", j.Key)).Err())
	require.Equal(t, want, must(b.Body(t.Context(), j.Key)))
	_, err := other.Body(t.Context(), j.Key)
	require.ErrorIs(t, err, queue.ErrNotFound)
	must(b.Requeue(t.Context(), claimed.Run, queue.RequeueOptions{Reason: "lost"}))
	_, err = b.Body(t.Context(), j.Key)
	require.ErrorIs(t, err, queue.ErrNotFound, "it is nobody's run now")
}
