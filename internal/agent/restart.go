package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

const (
	// restartPause is the pause after the first restart of a server: it needs minutes to
	// load its models and must not be killed meanwhile. Each further one doubles it, up to
	// restartMost: what a restart does not cure is not cured by many.
	restartPause, restartMost = 2 * time.Minute, time.Hour
	// restartCured is how long a server must have gone without a restart for the pauses to
	// begin again.
	restartCured = 3 * time.Hour
	// restartTimeout bounds the command.
	restartTimeout = 5 * time.Minute
	// maxRestartError bounds what is told of a command that failed, in bytes.
	maxRestartError = 200
)

// restarter restarts one server with the operator's command.
type restarter struct {
	// command runs the command.
	command func() error
	// now says what the server is doing.
	now func() moment
	// begins is called before the command, and failed when it has failed.
	begins, failed func()
	log            *slog.Logger

	mu sync.Mutex
	// count is how many restarts there were since the server last went well, last when
	// the last of them began.
	count int
	last  time.Time
	// next is when one is due that had to wait; zero if there is none. asked is what the server
	// did when it was last asked for.
	next    time.Time
	asked   moment
	timer   *time.Timer
	running bool
	err     string
	closed  bool
}

// moment is what a server is doing: its process, and the prompt that runs there, "" for none.
type moment struct {
	boot   int64
	prompt string
}

// same reports whether a server still is as it was when somebody wanted it restarted. One that runs
// another prompt has got rid of what it hung on.
func (m moment) same(asked moment) bool {
	return m.boot == asked.boot && (m.prompt == "" || m.prompt == asked.prompt)
}

// restarts is what hubs are told of the restarts of a server.
type restarts struct {
	count int
	next  time.Time // zero if none is planned
	err   string    // of the last one, if the command failed
}

var errRestarting = errors.New("it was restarted a moment ago; it will be restarted again after a pause if it is still the same process and no other prompt runs there")

// start runs the command, which continues if the agent ends. It does not wait. Where the
// last restart was a moment ago, it plans one and returns errRestarting.
func (r *restarter) start() error {
	if !r.begin() {
		return errRestarting
	}
	r.begins() // which asks for the state: it must not be locked
	go r.run()
	return nil
}

// begin notes that a restart begins, or plans one for later.
func (r *restarter) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgive()
	if r.running || time.Now().Before(r.earliest()) {
		r.plan()
		return false
	}
	r.count, r.last, r.running, r.err = r.count+1, time.Now(), true, ""
	return true
}

// forgive resets the count after a server has worked well for a while. The caller holds the
// lock, as for the next ones.
func (r *restarter) forgive() {
	if r.count > 0 && time.Since(r.last) >= restartCured {
		r.count, r.err = 0, ""
	}
}

// earliest is when the next restart may be.
func (r *restarter) earliest() time.Time {
	if r.count == 0 {
		return time.Time{}
	}
	pause := restartMost
	if shift := r.count - 1; shift < 5 { // 2, 4, 8, 16, 32 minutes
		pause = restartPause << shift
	}
	return r.last.Add(pause)
}

// plan has the server restarted when it may be, if that still makes sense then.
func (r *restarter) plan() {
	if r.closed {
		return
	}
	r.asked = r.now()
	if !r.next.IsZero() {
		return
	}
	r.next = r.earliest()
	r.timer = time.AfterFunc(time.Until(r.next), func() {
		now := r.now()
		r.mu.Lock()
		r.next = time.Time{}
		wanted := now.same(r.asked) && !r.closed
		r.mu.Unlock()
		if wanted {
			_ = r.start() // if it is too early, that plans another one
		}
	})
}

func (r *restarter) run() {
	err := r.command()
	r.mu.Lock()
	r.running = false
	if err != nil {
		text := err.Error()
		r.err = text[:min(len(text), maxRestartError)]
		r.plan()
	}
	r.mu.Unlock()
	if err != nil {
		r.failed()
	}
}

// state returns what hubs are told.
func (r *restarter) state() restarts {
	if r == nil {
		return restarts{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgive()
	return restarts{r.count, r.next, r.err}
}

// close drops the restart that is planned.
func (r *restarter) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// newRestarter makes what restarts a server.
func (a *agent) newRestarter(i *instance) *restarter {
	return &restarter{
		command: func() error { return shell(a.restartCommand, i.target, a.log) },
		now: func() moment {
			a.servers.mu.Lock()
			defer a.servers.mu.Unlock()
			return moment{i.seen.Boot, i.seen.Running}
		},
		begins: func() { a.servers.ask(i) }, failed: func() { a.servers.unask(i) }, log: a.log,
	}
}

// shell runs the operator's command for a server.
func shell(command string, t target, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), restartTimeout)
	defer cancel()
	shell, flag := "sh", "-c"
	if runtime.GOOS == "windows" {
		shell, flag = "cmd", "/C"
	}
	cmd := exec.CommandContext(ctx, shell, flag, command)
	cmd.Env = append(os.Environ(), "COMFYHUB_INSTANCE="+t.name, "COMFYHUB_INSTANCE_URL="+t.url)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	log.Warn("restarting an instance that a hub reported unhealthy", "instance", t.name)
	if err := cmd.Run(); err != nil {
		tail := out.Bytes()[max(0, out.Len()-500):]
		log.Error("the restart command failed", "instance", t.name, "error", err, "output", string(tail))
		return fmt.Errorf("the restart command failed: %w", err)
	}
	return nil
}
