package main

import (
	"fmt"
	"syscall"
)

// mount makes a small file system in memory. Only root can do that.
func mount(path string) error {
	return syscall.Mount("tmpfs", path, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d,mode=700", diskSize))
}

// unmount removes it, also while a program still uses it.
func unmount(path string) error { return syscall.Unmount(path, syscall.MNT_DETACH) }
