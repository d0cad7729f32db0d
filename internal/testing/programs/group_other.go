//go:build unix && !linux

package programs

import "syscall"

// ownGroup puts a program into a process group of its own.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
