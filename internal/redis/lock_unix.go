//go:build unix

package redis

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFolder locks a data folder. The kernel releases the lock when the process
// ends, however it ends.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// unlockFolder releases the lock. Closing the file is not enough: a child that
// another goroutine has just forked keeps it open, and the lock with it, until it
// executes its program.
func unlockFolder(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	f.Close()
}
