package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// waits puts a job into the queue that needs a blob, or none.
func (b *bench) waits(id, blob string) job.Job {
	b.t.Helper()
	body := job.Body{Prompt: []byte(`{"1": {"class_type": "Nobody", "inputs": {}}}`)}
	if blob != "" {
		pins, err := files.Pins{{Ref: job.FileRef{Filename: id, Type: job.TypeInput}, Key: blob}}.Encode()
		require.NoError(b.t, err)
		body.Inputs, err = json.Marshal(files.Inputs{Version: 1, Pins: pins})
		require.NoError(b.t, err)
	}
	accepted, err := b.hub.queue.Enqueue(context.Background(), queue.Submission{
		Key: fmt.Sprint("key-", id), ID: id, Requester: job.Requester{Tenant: job.DefaultTenant, Caller: "caller"}, Class: "class", BodyHash: id, Body: body,
	})
	require.NoError(b.t, err)
	return accepted.Job
}

// The body of a job is read once, and what it needs is known until it has ended.
func TestPinnedBlobsAreReadOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0)
		ctx := t.Context()
		var read []string
		pinned := pinnedBlobs{turn: semaphore.NewWeighted(1), live: b.hub.queue.LiveKeys, each: func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error {
			read = append(read, keys...)
			return b.hub.queue.EachBody(ctx, keys, use)
		}}
		look := func(now []string, want ...string) {
			t.Helper()
			read = nil
			got, err := pinned.all(ctx)
			require.NoError(t, err)
			all := map[string]bool{}
			for _, blob := range want {
				all[blob] = true
			}
			require.Equal(t, all, got)
			require.ElementsMatch(t, now, read)
		}
		look(nil)
		one, two, none := b.waits("one", "blob 1"), b.waits("two", "blob 2"), b.waits("none", "")
		look([]string{one.Key, two.Key, none.Key}, "blob 1", "blob 2")
		look(nil, "blob 1", "blob 2")
		three := b.waits("three", "blob 2")
		look([]string{three.Key}, "blob 1", "blob 2")
		_, err := b.hub.queue.CancelWaiting(ctx, []string{one.Key, two.Key})
		require.NoError(t, err)
		look(nil, "blob 2")
		_, err = b.hub.queue.CancelWaiting(ctx, []string{three.Key})
		require.NoError(t, err)
		look(nil)
		require.Len(t, pinned.jobs, 1, "of jobs that have ended nothing is kept")
	})
}

// What cannot be read may be needed: then nothing is known, and it is tried again.
func TestPinnedBlobsThatCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0)
		b.waits("one", "blob 1")
		broken := true
		pinned := pinnedBlobs{turn: semaphore.NewWeighted(1), live: b.hub.queue.LiveKeys, each: func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error {
			if broken {
				return context.DeadlineExceeded
			}
			return b.hub.queue.EachBody(ctx, keys, use)
		}}
		_, err := pinned.all(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		broken = false
		all, err := pinned.all(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]bool{"blob 1": true}, all)
	})
}

// BenchmarkPinnedBlobs looks at 2,400 waiting jobs.
func BenchmarkPinnedBlobs(b *testing.B) {
	hub := newBench(b, 0, func(b *bench) { b.settings.MaxQueue = 10_000 })
	for n := range 2_400 { // a tenant may have a quarter of the queue
		hub.waits(fmt.Sprint(n), fmt.Sprint("blob ", n))
	}
	for name, forget := range map[string]bool{"known": false, "first": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if forget {
					hub.hub.janitor.pinned.jobs = nil
				}
				if _, err := hub.hub.janitor.pinned.all(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
