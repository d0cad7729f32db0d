//go:build unix

package hub_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/health"
)

// A storage that hangs keeps neither the start nor the end of a hub waiting.
func TestStorageHangsAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mark := filepath.Join(dir, "comfyhub-mark")
	require.NoError(t, syscall.Mkfifo(mark, 0o600)) // to open it waits for a writer
	b := newBench(t, 0, func(b *bench) { b.id.Storage = dir })
	require.ErrorIs(t, b.hub.Ready(t.Context()), health.ErrNoAnswer)
	b.closedToAll()
	b.stop()
	// Let go of the one who waits.
	gone := make(chan struct{})
	go func() {
		b.hub.AwaitOpening()
		close(gone)
	}()
	eventually(t, func() bool {
		if end, err := os.OpenFile(mark, os.O_RDWR, 0); err == nil {
			_ = end.Close()
		}
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, time.Minute, 5*time.Millisecond)
}
