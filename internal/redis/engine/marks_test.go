package engine_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// written makes a journal of four synced scripts, and gives it with the sizes that it had
// after each.
func written(t *testing.T) (data []byte, ends []int) {
	t.Helper()
	dir := t.TempDir()
	db := open(t, dir)
	for i := range 4 {
		run(t, db, push, fmt.Sprint(i, " ", string(bytes.Repeat([]byte{'x'}, 200))))
		info, err := os.Stat(filepath.Join(dir, aof))
		require.NoError(t, err)
		ends = append(ends, int(info.Size()))
	}
	data, err := os.ReadFile(filepath.Join(dir, aof))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return data, ends
}

// broken makes the beginning of a script's block unreadable, as a page does that did not
// reach the disk.
func broken(data []byte, from int) []byte {
	b := slices.Clone(data)
	clear(b[from+4 : from+14])
	return b
}

// What was being written in a crash may be damaged anywhere, not only at its end. It is cut
// off by itself: nobody was told that it is kept.
func TestDamagedTailIsCut(t *testing.T) {
	t.Parallel()
	data, ends := written(t)
	for from := ends[2]; from < len(data)-40; from++ {
		b := slices.Clone(data)
		clear(b[from : from+40])
		db := openCopy(t, b)
		require.Len(t, list(t, db), 3, "zeros at %d of %d", from, len(data))
		run(t, db, push, "on")
		require.NoError(t, db.Close())
	}
}

// What was synced and is damaged now stops the hub, and one command repairs it.
func TestDamageBeforeTheTailIsRepaired(t *testing.T) {
	t.Parallel()
	data, ends := written(t)
	dir, b := t.TempDir(), broken(data, ends[1])
	require.NoError(t, os.WriteFile(filepath.Join(dir, aof), b, 0o600))
	_, err := engine.Open(engine.Options{Dir: dir})
	require.ErrorContains(t, err, "caddy comfyhub repair-journal")
	after, err := os.ReadFile(filepath.Join(dir, aof))
	require.NoError(t, err)
	require.Equal(t, b, after, "evidence is not touched")

	kept, lost, err := engine.Repair(dir)
	require.NoError(t, err)
	require.Equal(t, len(data), int(kept+lost))
	evidence, err := os.ReadFile(filepath.Join(dir, aof+".damaged"))
	require.NoError(t, err)
	require.Equal(t, b, evidence)
	db := open(t, dir)
	require.Len(t, list(t, db), 2)
	_, _, err = engine.Repair(dir)
	require.ErrorIs(t, err, engine.ErrLocked)
	require.NoError(t, db.Close())
	_, lost, err = engine.Repair(dir)
	require.NoError(t, err)
	require.Zero(t, lost, "it is well")
}

// A journal of a version without marks is read as that version did.
func TestJournalWithoutMarks(t *testing.T) {
	t.Parallel()
	var data []byte
	var ends []int
	for i := range 3 {
		for _, args := range [][]string{{"MULTI"}, {"RPUSH", "list", fmt.Sprint(i)}, {"SET", "last", fmt.Sprint(i)}, {"EXEC"}} {
			data = engine.AppendCommand(data, args...)
		}
		ends = append(ends, len(data))
	}
	db := openCopy(t, data)
	require.Len(t, list(t, db), 3)
	run(t, db, push, "on")
	require.NoError(t, db.Close())
	dir := t.TempDir()
	b := slices.Clone(data)
	copy(b[ends[1]:], "nonsense")
	require.NoError(t, os.WriteFile(filepath.Join(dir, aof), b, 0o600))
	_, err := engine.Open(engine.Options{Dir: dir})
	require.ErrorContains(t, err, "damaged after byte")
}
