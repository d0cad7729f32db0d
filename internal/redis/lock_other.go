//go:build !unix

package redis

import (
	"errors"
	"io/fs"
	"os"
)

// lockFolder locks a data folder. Where there is no flock, an open file that cannot
// be removed serves as the lock: Windows refuses to remove a file that a living
// process has open.
func lockFolder(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, ErrLocked
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, ErrLocked
	}
	return f, err
}

// unlockFolder releases the lock.
func unlockFolder(f *os.File) { f.Close() }
