package retention

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The body of a job is read once, and what it needs is known until it has ended. What cannot be
// read may be needed, so nothing is known then, and it is tried again.
func TestPinnedBlobsAreReadOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := queue.New(redistest.Embedded(t), queue.Options{})
	require.NoError(t, err)
	waits := func(id, blob string) string {
		body := job.Body{Prompt: []byte("{}")}
		if blob != "" {
			pins, err := files.Pins{{Ref: job.FileRef{Filename: id, Type: job.TypeInput}, Key: blob}}.Encode()
			require.NoError(t, err)
			body.Inputs, err = json.Marshal(files.Inputs{Version: 1, Pins: pins})
			require.NoError(t, err)
		}
		_, err := q.Enqueue(ctx, queue.Submission{Key: id, ID: id, Requester: job.Requester{Tenant: "ann", Caller: "ann"}, Class: "class", BodyHash: id, Body: body})
		require.NoError(t, err)
		return id
	}
	var read []string
	var broken error
	pinned := PinnedBlobs{Turn: semaphore.NewWeighted(1), Live: q.LiveKeys, Each: func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error {
		read = append(read, keys...)
		if broken != nil {
			return broken
		}
		return q.EachBody(ctx, keys, use)
	}}
	look := func(now []string, want ...string) {
		t.Helper()
		read = nil
		got, err := pinned.All(ctx)
		require.NoError(t, err)
		all := map[string]bool{}
		for _, blob := range want {
			all[blob] = true
		}
		require.Equal(t, all, got)
		require.ElementsMatch(t, now, read)
	}
	cancel := func(key string) {
		_, err := q.CancelWaiting(ctx, []string{key})
		require.NoError(t, err)
	}
	look(nil)
	one, two, none := waits("one", "blob 1"), waits("two", "blob 2"), waits("none", "")
	broken = context.DeadlineExceeded
	_, err = pinned.All(ctx)
	require.ErrorIs(t, err, broken)
	broken = nil
	look([]string{one, two, none}, "blob 1", "blob 2")
	look(nil, "blob 1", "blob 2")
	three := waits("three", "blob 2")
	look([]string{three}, "blob 1", "blob 2")
	cancel(one)
	look(nil, "blob 2")
	cancel(three)
	look(nil, "blob 2")
	cancel(two)
	look(nil)
	require.Len(t, pinned.Jobs, 1, "of jobs that have ended nothing is kept")
}
