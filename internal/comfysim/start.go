package comfysim

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// stopTimeout is how long a simulator may take to end before it is killed.
const stopTimeout = 10 * time.Second

// Process is a running simulator. It ends with this process, however that ends: its standard
// input is a pipe, which the system closes.
type Process struct {
	// URLs are the servers'.
	URLs []string

	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // of its end, once ended is closed
}

// Start starts a simulator with count servers, and waits until they listen. What it logs goes
// to log.
func Start(count int, arguments []string, log io.Writer) (*Process, error) {
	out, lines := io.Pipe()
	defer out.Close()
	p, err := start(append([]string{"--count=" + strconv.Itoa(count), "--any-port"}, arguments...), lines, log)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.ended
		_ = lines.Close()
	}()
	for scanner := bufio.NewScanner(out); len(p.URLs) < count && scanner.Scan(); {
		p.URLs = append(p.URLs, strings.TrimSpace(scanner.Text()))
	}
	if len(p.URLs) < count {
		err := p.Stop()
		if errors.As(err, new(ExitError)) {
			return nil, err
		}
		return nil, fmt.Errorf("the simulator has ended before its servers listened: %w", cmp.Or(err, io.EOF))
	}
	return p, nil
}

// start starts a simulator that ends with this process.
func start(arguments []string, out, log io.Writer) (*Process, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path) // #nosec G204 -- it lies beside this program
	cmd.Args = append([]string{processName, "--until-eof"}, arguments...)
	cmd.Stdout, cmd.Stderr = out, log
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the simulator: %w", err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Ended is closed when the simulator has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stop ends the simulator and waits for its end. It returns an [ExitError] if it had failed.
func (p *Process) Stop() error {
	p.stdin.Close()
	late := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	var failed *exec.ExitError
	if errors.As(p.err, &failed) && failed.Exited() {
		return ExitError{failed.ExitCode()}
	}
	return p.err
}
