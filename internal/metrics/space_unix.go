//go:build linux || darwin

package metrics

import "syscall"

// space returns the space of the file system that has a path, in bytes.
func space(path string) (free, size uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, 0, err
	}
	unit := uint64(s.Bsize) // #nosec G115 -- it is positive
	return s.Bavail * unit, s.Blocks * unit, nil
}
