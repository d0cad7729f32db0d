package redistest

import "syscall"

// dieWithParent ends a server with the test process that started it, however
// that ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
