//go:build unix

package scale

import (
	"os/exec"
	"syscall"
)

// endAll makes the end of a program that takes too long the end of what it has started, too: that
// must not go on beside the next call.
func endAll(p *exec.Cmd) {
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = func() error { return syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }
}
