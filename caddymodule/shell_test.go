package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/shell"
)

// exitCode is the error of a program that ends.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprint("exit ", int(e)) }

// command runs a command of `caddy comfyhub`.
func (s *site) command(args ...string) (code int, out, errors string) {
	s.t.Helper()
	parent := &cobra.Command{Use: "comfyhub"}
	shell.AddCommands(parent, shell.Options{
		Exit:    func(code int) error { return exitCode(code) },
		Resolve: func(address string) (string, string, error) { return "tcp", address, nil },
	})
	var stdout, stderr bytes.Buffer
	parent.SetArgs(args)
	parent.SetOut(&stdout)
	parent.SetErr(&stderr)
	if err := parent.ExecuteContext(s.t.Context()); err != nil {
		exit, ok := err.(exitCode) //nolint:errorlint // it is not wrapped
		require.True(s.t, ok, err)
		code = int(exit)
	}
	return code, stdout.String(), stderr.String()
}

// The operator's commands do what they say at a real admin endpoint.
func TestOperatorsCommands(t *testing.T) {
	for _, name := range []string{"COMFYHUB_URL", "COMFYHUB_USER", "COMFYHUB_TOKEN"} {
		t.Setenv(name, "")
	}
	s := newSite(t)
	s.start("")
	t.Setenv("COMFYHUB_ADMIN", s.admin)
	at := []string{"--address", s.admin}
	run := func(code int, says string, args ...string) {
		t.Helper()
		got, out, errors := s.command(args...)
		require.Equal(t, code, got, out+errors)
		require.Contains(t, out+errors, says)
	}
	var fleet shell.Fleet
	_, out, _ := s.command("status", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &fleet))
	require.True(t, fleet.Operator)
	require.Equal(t, s.admin, fleet.From, "COMFYHUB_ADMIN says where")
	require.Len(t, fleet.Instances, 1)
	name := fleet.Instances[0].Name

	run(0, "Instances  1: 1 idle", append(at, "status")...)
	run(0, "Instances  1: 1 idle", "status", "--hub", "http://"+s.api)
	run(2, "not both", append(at, "status", "--hub", "http://"+s.api)...)
	run(0, "nothing runs on "+name, "drain", name, "--wait", "--deadline", "10m")
	run(0, "1 draining", "status")
	run(0, "resumed instance "+name, "resume", name)
	run(0, "1 idle", "status")
	run(1, "deadline", "drain", name, "--deadline", "soon")
	run(1, `no instance is called "nobody"`, "drain", "nobody")
	run(1, "did you mean "+name+"?", "drain", name[:len(name)-1])
	run(1, "no instance fits", "drain", "nobody-*")
	run(1, "--restart-command", "restart", name, "--yes")
	run(2, "which instance", "drain")
	run(2, "is empty", "pause", "")
	run(0, "paused everything", "pause")
	run(0, "PAUSED", "status")
	run(0, "resumed everything", "resume")
	run(0, "paused tenant ann", "pause", "--tenant", "ann")
	run(0, "resumed tenant ann", "resume", "--tenant", "ann")
	run(2, "not both", "pause", name, "--tenant", "ann")
	run(1, "belongs to the fleet", "forget", name)
	run(1, "no agent", "forget", "--agent", "nobody")
	run(4, "run it on the hub's machine", "drain", name, "--address", freeAddress(t))

	// A job that runs is waited for, and shown with who asked for it.
	status, _ := s.call(http.MethodPost, s.api, "/prompt", lastingPrompt)
	require.Equal(t, http.StatusOK, status)
	s.await(func() bool {
		_, out, _ := s.command("status", "--json")
		require.NoError(t, json.Unmarshal([]byte(out), &fleet))
		return len(fleet.Running) == 1
	})
	run(0, "default", "status")
	id, tenant := fleet.Running[0].ID, fleet.Running[0].Tenant
	run(0, "tenant    "+tenant, append(at, "status", id)...)
	run(0, "instance  "+name, "status", id, "--tenant", tenant)
	run(1, "Job not found", "status", id, "--tenant", "ann")
	run(1, "Job not found", append(at, "cancel", "none")...)
	run(2, "not both", "cancel", id, "--tenant", tenant, "--hub", "http://"+s.api)
	run(0, "cancelled", append(at, "cancel", id)...)
	run(1, "has ended", append(at, "cancel", s.failed())...)
	run(0, "nothing runs on "+name, "drain", name, "--wait")
}

// failed runs a prompt that fails, and returns its id: the operator reads why.
func (s *site) failed() string {
	s.t.Helper()
	_, answer := s.call(http.MethodPost, s.api, "/prompt", strings.NewReplacer("3600", "0", "none", "error").Replace(lastingPrompt))
	var posted struct {
		ID string `json:"prompt_id"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(answer), &posted))
	s.await(func() bool {
		_, out, _ := s.command("status", posted.ID, "--address", s.admin)
		return strings.HasPrefix(out, "failed: ") && strings.Contains(out, "simulated failure")
	})
	return posted.ID
}

// lastingPrompt is the body of a prompt that runs until it is cancelled.
const lastingPrompt = `{"prompt": {"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 1}},
	"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 3600, "steps": 720, "fail": "none", "nonce": 1}},
	"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}}`
