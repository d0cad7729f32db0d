package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end before it is killed.
const stopTimeout = 15 * time.Second

// process is a program in a process group of its own: Ctrl-C in the terminal
// reaches the demo alone, which then ends its programs in order, and whatever
// they start ends with them.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
}

// start runs a program with its output in a log file.
func start(name, log string, env []string, program string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = file, file, env
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		// How it ended shows in its log; that it ended is what matters here.
		_ = cmd.Wait()
	}()
	return p, nil
}

// stop asks the program to end, and kills its whole group if it does not.
func (p *process) stop() {
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
	}
	// Also when the program itself is gone: a child of it may not be.
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-p.done
}
