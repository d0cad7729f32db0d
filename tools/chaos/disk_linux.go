package main

import (
	"fmt"
	"syscall"
)

// mount makes a file system in memory. Only root can do that.
func mount(path string) error {
	return syscall.Mount("tmpfs", path, "tmpfs", flags, fmt.Sprintf("size=%d,mode=700", diskSize))
}

const flags = syscall.MS_NOSUID | syscall.MS_NODEV

// resize changes its size. It fails if more than that is stored.
func resize(path string, size int64) error {
	return syscall.Mount("tmpfs", path, "tmpfs", flags|syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size))
}

// shrink makes it as small as what it stores.
func shrink(path string) (err error) {
	for range 100 { // something may be stored between the look and the change
		var now syscall.Statfs_t
		if err := syscall.Statfs(path, &now); err != nil {
			return err
		}
		// A size of zero would mean no limit.
		if err = resize(path, max(int64(now.Blocks-now.Bfree), 1)*now.Bsize); err == nil {
			return nil
		}
	}
	return err
}

// unmount removes it, also while a program still uses it.
func unmount(path string) error { return syscall.Unmount(path, syscall.MNT_DETACH) }
