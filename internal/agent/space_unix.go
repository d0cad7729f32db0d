//go:build linux || darwin

package agent

import "syscall"

// space returns the space of the disk that has a folder, for unprivileged programs.
func space(folder string) (room, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return room{}, err
	}
	unit := int64(s.Bsize) //nolint:unconvert // it has another type on other systems
	return room{free: int64(s.Bavail) * unit, size: int64(s.Blocks) * unit}, nil
}
