package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	d, err := newDisk(filepath.Join(t.TempDir(), "disk"))
	require.NoError(t, err)
	if d.folder != nil {
		t.Skip("only root can mount a file system: ", d.folder)
	}
	t.Cleanup(d.close)
	file, old := filepath.Join(d.path, "file"), filepath.Join(d.path, "old")
	require.NoError(t, os.WriteFile(old, make([]byte, 10_000), 0o600))
	require.NoError(t, d.fill())
	require.ErrorIs(t, os.WriteFile(file, []byte("x"), 0o600), syscall.ENOSPC)
	stored, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Len(t, stored, 10_000)
	require.NoError(t, d.free())
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
}
