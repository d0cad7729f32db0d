package programs

import "syscall"

// ownGroup puts a program into a process group of its own. The system kills it
// with the thread that started it, so with the process at the latest, also where
// that is killed without a chance to clean up.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
