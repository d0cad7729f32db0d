package programs

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell starts a shell script.
func shell(t *testing.T, script string, env ...string) *Program {
	t.Helper()
	p, err := Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Env: env, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, time.Millisecond)
}

func TestAProgramLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Program){
		"killed":             (*Program).Kill,
		"stopped":            (*Program).Stop,
		"paused and stopped": func(p *Program) { p.Pause(); p.Stop() },
		"paused and killed":  func(p *Program) { p.Pause(); p.Kill() },
		"killed by another":  func(p *Program) { p.signal(syscall.SIGKILL); <-p.Ended() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			p := shell(t, `sleep 600 >"$PIPE" & exec sleep 600`, "PIPE="+pipe)
			child, err := os.Open(pipe) // once the child has opened it, too
			require.NoError(t, err)
			defer child.Close()
			require.True(t, p.Running())
			end(p)
			require.False(t, p.Running())
			require.Error(t, syscall.Kill(p.PID(), 0), "the process is gone")
			_, err = io.ReadAll(child)
			require.NoError(t, err, "the child is gone: the pipe has an end")
			end(p) // does no harm once more
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	p := shell(t, `exec sleep 600`)
	stat := fmt.Sprintf("/proc/%d/stat", p.PID())
	if _, err := os.Stat(stat); err != nil {
		t.Skip("this system does not tell how a process is")
	}
	state := func() string {
		text, err := os.ReadFile(stat)
		require.NoError(t, err)
		return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
	}
	p.Pause()
	eventually(t, func() bool { return state() == "T" })
	p.Resume()
	eventually(t, func() bool { return state() == "S" })
	now, most := p.Memory()
	require.Positive(t, now)
	require.GreaterOrEqual(t, most, now)
}

//nolint:paralleltest // changes the environment
func TestSettingsOfARealHubReachNoProgram(t *testing.T) {
	t.Setenv("COMFYHUB_DATA", "a real hub's")
	t.Setenv("UNRELATED", "kept")
	p := shell(t, `echo "${COMFYHUB_DATA-unset} $UNRELATED"`)
	<-p.Ended()
	require.Equal(t, "unset kept\n", p.Log())
}

func TestAHubThatEndsIsNotAwaited(t *testing.T) {
	t.Parallel()
	f, err := NewFleet(Set{Caddy: "/bin/false"}, t.TempDir(), "embedded")
	require.NoError(t, err)
	require.ErrorIs(t, f.StartHub(t.Context()), errEnded)
	_, err = f.AwaitIdle(t.Context(), 1)
	require.ErrorIs(t, err, errEnded)
	f.Set.Caddy, f.Hub = "/nowhere", nil
	require.ErrorIs(t, f.StartHub(t.Context()), fs.ErrNotExist)
	f.Stop()
}

func TestAFleetEndsWithWhoWaitsForIt(t *testing.T) {
	t.Parallel()
	f, err := NewFleet(Set{}, t.TempDir(), "embedded")
	require.NoError(t, err)
	f.Hub, err = f.Start(Spec{Name: "hub", Path: "/bin/sh", Args: []string{"-c", "seq 100; exec sleep 600"}})
	require.NoError(t, err)
	t.Cleanup(f.Kill)
	eventually(t, func() bool { return strings.HasSuffix(f.Logs(), "\n100\n\n") })
	require.Contains(t, f.Logs(), "\n1\n2\n")
	require.NotContains(t, f.Tails(), "\n1\n2\n", "the last lines only")
	require.Contains(t, f.Tails(), "\n99\n100\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.AwaitIdle(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	f.Stop()
	require.False(t, f.Hub.Running())
}
