package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

var noteScript = redis.NewScript("note", redis.Durable, "write('RPUSH', key('notes'), ARGV[1]) return {'ok'}")

// The hub names the command that repairs a damaged journal, and the command does so.
func TestRepairJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	journal := filepath.Join(dir, "queue.aof")
	require.Equal(t, ExitUsage, call(t, "", "repair-journal", dir).code, "there is none")
	db := redistest.OpenDir(t, dir)
	var ends []int64
	for _, note := range []string{"one", "two", "three"} {
		_, err := db.Run(t.Context(), noteScript, note+strings.Repeat(" ", 200))
		require.NoError(t, err)
		info, err := os.Stat(journal)
		require.NoError(t, err)
		ends = append(ends, info.Size())
	}
	r := call(t, "", "repair-journal", dir)
	require.Equal(t, ExitUsage, r.code, "a hub has it")
	require.NoError(t, db.Close())
	r = call(t, "", "repair-journal", dir)
	require.Zero(t, r.code, r.errors)
	require.Equal(t, "the journal is well\n", r.out)

	whole, err := os.ReadFile(journal)
	require.NoError(t, err)
	clear(whole[ends[0]+4 : ends[0]+14])
	require.NoError(t, os.WriteFile(journal, whole, 0o600))
	_, err = redis.Open(t.Context(), redis.Options{URL: redis.Embedded, Dir: dir})
	require.ErrorContains(t, err, "caddy comfyhub repair-journal")
	r = call(t, "", "repair-journal", dir)
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.out, "queue.aof.damaged has all of it")
	kept, err := os.ReadFile(journal + ".damaged")
	require.NoError(t, err)
	require.Equal(t, whole, kept)
	db = redistest.OpenDir(t, dir)
	notes, err := db.Client().LRange(t.Context(), db.Key("notes"), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, notes, 1)
	require.NoError(t, db.Close())
}
