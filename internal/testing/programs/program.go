// Package programs runs the programs of this repository, and redis-server, as
// processes of their own: for tests that kill, pause and restart them, and for
// the demonstrations. Nothing that it starts outlives the process that uses it
// (on other systems than Linux, unless that process is killed).
package programs

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end before it is killed.
const stopTimeout = 15 * time.Second

// Spec says what to run.
type Spec struct {
	// Name stands in errors, and is the name of the log without ".log". Programs
	// of one name share a log.
	Name string
	// Path is the executable; Args are its arguments without its name.
	Path string
	Args []string
	// Env is added to the environment of this process, without the variables
	// COMFYHUB_*: the settings of a real hub on this machine reach no program.
	Env []string
	// Dir is the folder of the log.
	Dir string
	// OnThread starts the program on the caller's thread, so in that one's network, and lets
	// it end with it.
	OnThread bool
}

// Program is a running program, or one that has ended and can be started again.
// It has a process group of its own: Ctrl-C in a terminal does not reach it, and
// what it starts ends with it. All methods may be called at the same time.
type Program struct {
	spec Spec

	mu    sync.Mutex // guards what Restart replaces
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a program. Its output is appended to its log.
func Start(spec Spec) (*Program, error) {
	p := &Program{spec: spec}
	return p, p.launch()
}

func (p *Program) launch() error {
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.spec.Path, p.spec.Args...) // #nosec G204 -- the programs of this repository
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, ownGroup()
	for _, variable := range os.Environ() {
		// Nor how often the garbage of tests is collected.
		if !strings.HasPrefix(variable, "COMFYHUB_") && !strings.HasPrefix(variable, "GOGC=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	// What a killed program leaves behind is in the folder that is removed with its log.
	cmd.Env = append(append(cmd.Env, "TMPDIR="+p.spec.Dir), p.spec.Env...)
	// All that belongs to the program has the end of a pipe to write to, so that the other end
	// tells when the last of them is gone, and with it their ports.
	last, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	started, ended := make(chan error, 1), make(chan struct{})
	if p.spec.OnThread {
		started <- cmd.Start()
	}
	go func() {
		defer close(ended)
		defer last.Close()
		if !p.spec.OnThread {
			// The system kills the program with the thread that has started it, and Go ends a
			// thread with the goroutine that is bound to it. No other goroutine gets this one's.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started <- cmd.Start()
		}
		if cmd.Process != nil {
			_ = cmd.Wait() // its log shows how it ended
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_, _ = io.Copy(io.Discard, last)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%s: %w", p.spec.Name, err)
	}
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	return nil
}

// Name is the name from the Spec.
func (p *Program) Name() string { return p.spec.Name }

// PID is the id of the process, the last one if it has ended.
func (p *Program) PID() int { return p.process().Pid }

// Ended is closed when the program has ended, and everything that it started.
func (p *Program) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Running reports whether the program has not ended yet.
func (p *Program) Running() bool {
	select {
	case <-p.Ended():
		return false
	default:
		return true
	}
}

// Kill ends the program and what it has started at once, as kill -9 does, and waits for their end.
func (p *Program) Kill() {
	p.signalAll(syscall.SIGKILL)
	<-p.Ended()
}

// Stop asks the program to end (SIGTERM), waits for its end, and kills it after
// 15 s.
func (p *Program) Stop() {
	p.signal(syscall.SIGTERM)
	p.Resume() // a paused program does not hear that it should end
	select {
	case <-p.Ended():
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// Pause makes the program and what it has started hang until Resume (SIGSTOP): their
// connections stay, and they answer nothing.
func (p *Program) Pause() { p.signalAll(syscall.SIGSTOP) }

// Resume lets a paused program go on (SIGCONT).
func (p *Program) Resume() { p.signalAll(syscall.SIGCONT) }

// Restart starts the program again as it was started before. One that still runs
// is stopped first.
func (p *Program) Restart() error {
	p.Stop()
	return p.launch()
}

func (p *Program) process() *os.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process
}

// signal sends a signal, unless the program has ended.
func (p *Program) signal(s syscall.Signal) { _ = p.process().Signal(s) }

// signalAll sends a signal to the program and what it has started.
func (p *Program) signalAll(s syscall.Signal) {
	if p.Running() {
		_ = syscall.Kill(-p.PID(), s)
	}
}

// LogFile is the file that the program's output goes to.
func (p *Program) LogFile() string { return filepath.Join(p.spec.Dir, p.spec.Name+".log") }

// Log is the program's output so far, from all starts.
func (p *Program) Log() string {
	text, err := os.ReadFile(p.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Memory is how much memory the program occupies and has occupied at most, both
// resident, in bytes; 0 on systems that do not tell.
func (p *Program) Memory() (now, most int64) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		field, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch field {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			most = kib << 10
		}
	}
	return now, most
}

// tick is what /proc counts processor time in: on Linux it is 10 ms everywhere.
const tick = 10 * time.Millisecond

// CPU is the processor time that the program has used since its last start, in steps
// of 10 ms; 0 on systems that do not tell.
func (p *Program) CPU() time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/stat")
	if err != nil {
		return 0
	}
	// The name, in parentheses, may have spaces. The times of user and system are
	// fields 14 and 15 of all.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0
	}
	var ticks int64
	for _, field := range fields[user : system+1] {
		n, _ := strconv.ParseInt(field, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * tick
}
