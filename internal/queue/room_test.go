package queue_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A Redis that is full of history takes prompts all the same: the oldest history goes.
func TestFullOfHistory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := redistest.Open(t, server.URL())
	b := on(t, db, queue.Options{})
	ctx := t.Context()
	const ended = 200
	noise := make([]byte, 16<<10)
	random := rand.NewChaCha8([32]byte{})
	for i := range ended {
		_, _ = random.Read(noise)
		b.endedOf("ann", fmt.Sprintf("old%03d", i), hex.EncodeToString(noise))
	}
	full := func() {
		used := must(db.Client().Info(ctx, "memory").Result())
		_, used, _ = strings.Cut(used, "used_memory:")
		used, _, _ = strings.Cut(used, "\r")
		require.NoError(t, db.Client().ConfigSet(ctx, "maxmemory", used).Err())
	}
	full()
	_, err := b.Enqueue(ctx, submission("refused"))
	require.ErrorIs(t, err, queue.ErrUnavailable, "what has just ended stays")
	require.ErrorContains(t, b.Writable(ctx), "OOM")
	entries := func() int { return b.entriesOf("ann") }
	require.Equal(t, ended, entries())

	require.NoError(t, db.Client().ConfigSet(ctx, "maxmemory", "0").Err())
	b.lua(`for _, k in ipairs(redis.call('ZRANGE', key('q', 'history'), '0', '-1')) do
  write('HSET', key('q', 'job', k), 'finished', '1')
end`, "")
	full()
	for i := range 20 {
		b.enqueue(fmt.Sprintf("new%03d", i))
	}
	require.NoError(t, b.Writable(ctx))
	require.Less(t, entries(), ended)
	require.Greater(t, entries(), ended/2, "no more goes than has to")
	_, err = b.HistoryEntry(ctx, "ann", fmt.Sprintf("old%03d", ended-1))
	require.NoError(t, err, "the newest is there")
	_, err = b.HistoryEntry(ctx, "ann", "old000")
	require.ErrorIs(t, err, queue.ErrNotFound, "the oldest went")
}

// A Redis that answers but takes nothing is told from one that works.
func TestWritable(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		require.NoError(t, on(t, db, queue.Options{}).Writable(t.Context()))
	})
	for _, c := range []struct {
		name, says string
		harm       []any
	}{
		{"a replica", "READONLY", []any{"REPLICAOF", "127.0.0.1", "1"}},
		{"too few replicas", "NOREPLICAS", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}},
		{"no room", "OOM", []any{"CONFIG", "SET", "maxmemory", "1"}},
		{"no scripts", "NOPERM", []any{"ACL", "SETUSER", "default", "-eval", "-evalsha"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := redistest.Open(t, redistest.Start(t).URL())
			b := on(t, db, queue.Options{})
			require.NoError(t, b.Writable(t.Context()))
			require.NoError(t, db.Client().Do(t.Context(), c.harm...).Err())
			err := b.Writable(t.Context())
			require.ErrorIs(t, err, queue.ErrUnavailable)
			require.ErrorContains(t, err, c.says)
			require.NoError(t, db.Ping(t.Context()), "a PING shows nothing of it")
		})
	}
}
