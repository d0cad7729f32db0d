package queue_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// pipelines counts the round trips of a client, and how much the largest one has read.
type pipelines struct{ count, most int }

func (p *pipelines) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (p *pipelines) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		size := 0
		for _, cmd := range cmds {
			if s, ok := cmd.(*goredis.StringCmd); ok {
				size += len(s.Val())
			}
		}
		p.count, p.most = p.count+1, max(p.most, size)
		return err
	}
}

func TestManySmallBodiesAreFewRoundTrips(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		var keys, read []string
		for n := range 256 {
			keys = append(keys, b.enqueue(fmt.Sprint(n)).Key)
		}
		trips := &pipelines{}
		b.db.Client().AddHook(trips)
		err := b.EachBody(t.Context(), keys, func(body queue.StoredBody) error {
			read = append(read, body.Key)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, keys, read)
		require.LessOrEqual(t, trips.count, 5, "1 for the sizes, 4 for the bodies")
	})
}

func TestLargeBodiesAreReadFewAtATime(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		var keys, read []string
		for n := range 12 {
			noise := make([]byte, 300<<10) // which cannot be compressed
			_, _ = rand.Read(noise)
			keys = append(keys, b.enqueue(fmt.Sprint(n), func(s *queue.Submission) {
				s.Body.Prompt = []byte(`{"1": "` + hex.EncodeToString(noise) + `"}`)
			}).Key)
		}
		trips := &pipelines{}
		b.db.Client().AddHook(trips)
		gone := slices.Insert(slices.Clone(keys), 5, "gone")
		err := b.EachBody(t.Context(), gone, func(body queue.StoredBody) error {
			read = append(read, body.Key)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, keys, read)
		require.LessOrEqual(t, trips.most, 1<<20)
		require.Positive(t, trips.most)
	})
}

// The hub that accepted a prompt and has its run does not ask Redis for the body. Every other hub
// does, and so does this one once the run is over.
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

// A lesson belongs to one life of one instance, and hubs share it.
func TestLessons(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		known := queue.Lesson{Instance: "gpu1", Boot: "a", Text: "bounds of x"}
		require.NoError(t, b.Learn(ctx, nil))
		require.NoError(t, b.Learn(ctx, []queue.Lesson{known, {Instance: "gpu2", Boot: "a", Text: "bounds of x"}}))
		require.NoError(t, b.Learn(ctx, []queue.Lesson{known}), "again")
		other := on(t, b.db, queue.Options{})
		for _, c := range []struct {
			lesson queue.Lesson
			want   bool
		}{
			{known, true},
			{queue.Lesson{Instance: "gpu1", Boot: "b", Text: "bounds of x"}, false},
			{queue.Lesson{Instance: "gpu3", Boot: "a", Text: "bounds of x"}, false},
			{queue.Lesson{Instance: "gpu1", Boot: "a", Text: "bounds of y"}, false},
		} {
			require.Equal(t, c.want, must(other.Learnt(ctx, []queue.Lesson{known, c.lesson})), c.lesson)
		}
	})
}

// Hubs share what they measure: the last runs of each pair, and the pairs that were run last.
func TestDurations(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		require.NoError(t, b.KeepMeasured(ctx, nil))
		var runs []queue.Measured
		for n := range 15 {
			runs = append(runs, queue.Measured{Pair: "a:k:gpu", Run: fmt.Sprintf("1w%d", n)})
		}
		require.NoError(t, b.KeepMeasured(ctx, runs))
		other := on(t, b.db, queue.Options{})
		got, now, err := other.Durations(ctx, 0)
		require.NoError(t, err)
		require.Positive(t, now)
		require.Equal(t, map[string]string{"a:k:gpu": "1w3 1w4 1w5 1w6 1w7 1w8 1w9 1w10 1w11 1w12 1w13 1w14"}, got)

		runs = nil
		for n := range 2000 {
			runs = append(runs, queue.Measured{Pair: fmt.Sprintf("s%d:k:gpu", n), Run: "1w1"})
		}
		require.NoError(t, b.KeepMeasured(ctx, runs))
		require.NoError(t, b.KeepMeasured(ctx, []queue.Measured{{Pair: "new:k:gpu", Run: "1c2"}}))
		got, _, err = other.Durations(ctx, now)
		require.NoError(t, err)
		require.Len(t, got, 2000, "bounded")
		require.Equal(t, "1c2", strings.TrimSpace(got["new:k:gpu"]))
		_, kept := got["a:k:gpu"]
		require.False(t, kept, "the oldest goes first")
		got, _, err = other.Durations(ctx, now+1e12)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}
