//go:build !unix

package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// lockFolder takes the lock of a data folder. Where there is no flock, an
// open file that cannot be removed stands for the lock: Windows refuses to
// remove a file that a living process holds open.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, ErrLocked
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, ErrLocked
	}
	return f, err
}

// unlockFolder gives the lock back.
func unlockFolder(f *os.File) { f.Close() }
