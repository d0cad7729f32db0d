package queue_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// pipelines counts the round trips of a client, and what the largest one has read.
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
		for n := range 512 {
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
		require.LessOrEqual(t, trips.count, 10, "2 for the sizes, 8 for the bodies")
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
