package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

const (
	// restartPause is the minimum time between two restarts of one server: it needs
	// minutes to load its models and must not be killed meanwhile.
	restartPause = 2 * time.Minute
	// restartTimeout bounds the command.
	restartTimeout = 5 * time.Minute
)

// restarter restarts one server with the operator's command.
type restarter struct {
	command string
	target  target
	log     *slog.Logger

	mu   sync.Mutex
	last time.Time
}

var errRestarting = errors.New("it was restarted a moment ago")

// start runs the command, which continues if the agent ends. It does not wait. It
// calls begins before the command, and failed if the command fails.
func (r *restarter) start(begins, failed func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < restartPause {
		return errRestarting
	}
	r.last = time.Now()
	begins()
	go r.run(failed)
	return nil
}

func (r *restarter) run(failed func()) {
	ctx, cancel := context.WithTimeout(context.Background(), restartTimeout)
	defer cancel()
	shell, flag := "sh", "-c"
	if runtime.GOOS == "windows" {
		shell, flag = "cmd", "/C"
	}
	cmd := exec.CommandContext(ctx, shell, flag, r.command)
	cmd.Env = append(os.Environ(), "COMFYHUB_INSTANCE="+r.target.name, "COMFYHUB_INSTANCE_URL="+r.target.url)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	r.log.Warn("restarting an instance that a hub found sick", "instance", r.target.name)
	if err := cmd.Run(); err != nil {
		tail := out.Bytes()[max(0, out.Len()-500):]
		r.log.Error("the restart command failed", "instance", r.target.name, "error", err, "output", string(tail))
		failed()
	}
}
