package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A disk that is full in the middle of a block loses nothing that was acknowledged, at
// whichever byte that is, whether the process dies then or there is space again.
func TestDiskIsFullAtEachByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	block := 0
	acknowledged := []string{"first"}
	run(t, db, push, "first")
	for n, whole := 0, false; !whole; n++ {
		repair := db.FillDisk(n)
		value := fmt.Sprint("value ", n)
		if _, err := db.run(push, value); err == nil {
			whole, block = true, n
		} else {
			require.ErrorIs(t, err, syscall.ENOSPC)
			data, err := os.ReadFile(filepath.Join(dir, aof))
			require.NoError(t, err)
			crashed := openCopy(t, data)
			require.Equal(t, acknowledged, list(t, crashed))
			require.NoError(t, crashed.Close())
			_, err = db.run(push, "refused")
			require.ErrorIs(t, err, syscall.ENOSPC)
			repair()
			require.NoError(t, db.Usable())
		}
		acknowledged = append(acknowledged, value)
		require.Equal(t, acknowledged, list(t, db))
	}
	require.Greater(t, block, len("MULTI EXEC"))
	db.Abandon()
	require.Equal(t, acknowledged, list(t, open(t, dir)))
}

// A sync that began before the disk was full, and had to wait, finds that all it was called for
// is on the disk. The disk is full all the same, and nothing more is done.
func TestLateSyncKnowsNothingOfAFullDisk(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	run(t, db, push, "first")
	late := db.SyncLate()
	repair := db.FillDisk(0)
	_, err := db.run(push, "second")
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, late())
	_, err = db.run(push, "refused")
	require.ErrorIs(t, err, syscall.ENOSPC)
	repair()
	require.NoError(t, db.Usable())
	require.Equal(t, []string{"first", "second"}, list(t, db))
}
