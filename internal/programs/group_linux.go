package programs

import "syscall"

// ownGroup puts a program into a process group of its own. The system kills it
// with the process that started it, also where that is killed without a chance
// to clean up.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
