package main

import "syscall"

// ownGroup puts a program into a process group of its own and lets it die with
// the demo even where that is killed without a chance to clean up.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
