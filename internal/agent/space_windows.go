package agent

import (
	"math"

	"golang.org/x/sys/windows"
)

// space returns the space of the disk that has a folder, for the agent's account.
func space(folder string) (room, error) {
	path, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return room{}, err
	}
	var free, size uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, &size, nil); err != nil {
		return room{}, err
	}
	return room{free: int64(min(free, math.MaxInt64)), size: int64(min(size, math.MaxInt64))}, nil
}
