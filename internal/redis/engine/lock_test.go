//go:build unix

package engine

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A forked child has the lock's file open until it runs its program; that must
// not keep the folder locked.
func TestUnlockWhileAChildHasTheFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	f, err := lockFolder(path)
	require.NoError(t, err)
	_, err = lockFolder(path)
	require.ErrorIs(t, err, ErrLocked)
	child, err := syscall.Dup(int(f.Fd()))
	require.NoError(t, err)
	defer func() { _ = syscall.Close(child) }()
	unlockFolder(f)
	f, err = lockFolder(path)
	require.NoError(t, err)
	unlockFolder(f)
}
