package queue_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// endedOf makes an ended job of a tenant, with an entry.
func (b *bench) endedOf(tenant, id, entry string) {
	b.t.Helper()
	j := b.claim(b.enqueue(id, func(s *queue.Submission) { s.Tenant = tenant }), "gpu of "+tenant)
	require.NoError(b.t, b.Finish(b.t.Context(), j.Run, done(entry)))
}

func (b *bench) entriesOf(tenant string) int {
	b.t.Helper()
	keys := must(b.EndedKeys(b.t.Context(), tenant))
	return len(keys)
}

// One tenant's thousands of jobs never push out the few jobs of another.
func TestHistoryIsSharedFairly(t *testing.T) {
	const bound = 60
	each(t, queue.Options{HistoryEntries: bound}, func(t *testing.T, b *bench) {
		random := rand.New(rand.NewPCG(1, 2))
		for n := range 10 {
			b.endedOf("small", fmt.Sprint("s", n), "{}")
		}
		tenants := []string{"small", "b", "c", "d"}
		had := map[string]int{"small": 10}
		for n := range 400 {
			tenant := "b" // it makes most of them
			if random.IntN(10) == 0 {
				tenant = []string{"c", "d"}[random.IntN(2)]
			}
			b.endedOf(tenant, fmt.Sprint("j", n), "{}")
			had[tenant]++
			total := 0
			for _, other := range tenants {
				now := b.entriesOf(other)
				total += now
				if now < had[other] {
					require.GreaterOrEqual(t, now, bound/len(tenants), "%s lost an entry below its fair share", other)
					require.Equal(t, had[other]-1, now, "only what is too much goes")
				}
				had[other] = now
			}
			require.LessOrEqual(t, total, bound)
		}
		require.Equal(t, 10, b.entriesOf("small"))
	})
}

// Bytes are shared like entries: a tenant's huge entries push out its own.
func TestHistoryBytesAreSharedFairly(t *testing.T) {
	each(t, queue.Options{HistoryBytes: 4000}, func(t *testing.T, b *bench) {
		random := rand.New(rand.NewPCG(3, 4))
		for n := range 10 {
			b.endedOf("small", fmt.Sprint("s", n), "{}")
		}
		for n := range 20 {
			var huge strings.Builder
			for range 2000 {
				huge.WriteByte(byte(random.IntN(256))) // so that it does not compress
			}
			b.endedOf("large", fmt.Sprint("l", n), huge.String())
			require.Equal(t, 10, b.entriesOf("small"))
			require.LessOrEqual(t, b.entriesOf("large"), 2)
			require.Positive(t, b.entriesOf("large"), "the newest can be read")
		}
	})
}

// What a hub of an earlier version has written is counted at the next recount,
// exactly once.
func TestHistoryOfAnOlderHubIsCounted(t *testing.T) {
	each(t, queue.Options{HistoryEntries: 30}, func(t *testing.T, b *bench) {
		ctx, shares := t.Context(), []string{b.db.Key("q", "shares", "entries"), b.db.Key("q", "shares", "bytes")}
		for n := range 20 {
			b.endedOf("old", fmt.Sprint(n), "{}")
		}
		before := must(b.db.Client().ZScore(ctx, shares[1], "old").Result())
		keys := must(b.EndedKeys(ctx, "old"))
		require.NoError(t, b.db.Client().Del(ctx, shares...).Err())
		for _, key := range keys {
			require.NoError(t, b.db.Client().HDel(ctx, b.db.Key("q", "job", key), "shared").Err())
		}
		b.endedOf("new", "1", "{}")
		for range 2 {
			require.NoError(t, b.RecountHistory(ctx))
			require.InDelta(t, before, must(b.db.Client().ZScore(ctx, shares[1], "old").Result()), 0)
		}
		for n := range 30 {
			b.endedOf("new", fmt.Sprint("n", n), "{}")
		}
		require.Equal(t, 15, b.entriesOf("old"))
		require.Equal(t, 15, b.entriesOf("new"))
	})
}
