package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/shell"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestAdmin(t *testing.T) {
	s := newSite(t)
	s.start("")
	_, answer := s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
	var instances []struct{ Name string }
	require.NoError(t, json.Unmarshal([]byte(answer), &instances))
	require.Len(t, instances, 1)
	name := url.QueryEscape(instances[0].Name)

	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/comfyhub/live", http.StatusOK},
		{http.MethodHead, "/comfyhub/ready", http.StatusOK},
		{http.MethodPost, "/comfyhub/ready", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/stats", http.StatusOK},
		{http.MethodGet, "/comfyhub/scale", http.StatusOK},
		{http.MethodGet, "/comfyhub/jobs?status=running&limit=10", http.StatusOK},
		{http.MethodGet, "/comfyhub/jobs?limit=1001", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/cancel?tenant=default&job=none", http.StatusOK},
		{http.MethodPost, "/comfyhub/cancel?job=none", http.StatusBadRequest},
		{http.MethodGet, "/comfyhub/cancel?tenant=default&job=none", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/drain?instance=" + name, http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/drain", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/restart", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/restart?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/restart?instance=" + name, http.StatusConflict},
		{http.MethodPost, "/comfyhub/drain?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/drain?instance=nobody&deadline=10m", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=soon", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=0", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=31d", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?instance=" + name + "&deadline=10m&tenant=ada", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/drain?deadline=10m", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/resume?instance=nobody", http.StatusNotFound},
		{http.MethodGet, "/comfyhub/pause", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/pause?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/pause?instance=", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/pause?tenent=ada", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/pause?tenant=ada&instance=" + name, http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/pause?tenant=ada", http.StatusOK},
		{http.MethodPost, "/comfyhub/resume?tenant=ada", http.StatusOK},
		{http.MethodPost, "/comfyhub/pause", http.StatusOK},
		{http.MethodPost, "/comfyhub/resume", http.StatusOK},
		{http.MethodGet, "/comfyhub/forget?agent=nobody", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/forget", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/forget?agent=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/forget?instance=nobody", http.StatusNotFound},
		{http.MethodPost, "/comfyhub/forget?instance=", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/forget?instance=a&agent=b", http.StatusBadRequest},
		{http.MethodGet, "/comfyhub/rotate-keys", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/hub-key", http.StatusOK},
		{http.MethodPost, "/comfyhub/hub-key", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/trash", http.StatusOK},
		{http.MethodGet, "/comfyhub/trash?limit=none", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/trash?id=x", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/trash?tenant=ada&id=x", http.StatusNotFound},
		{http.MethodDelete, "/comfyhub/trash", http.StatusMethodNotAllowed},
		{http.MethodGet, "/comfyhub/tokens", http.StatusOK},
		{http.MethodPut, "/comfyhub/tokens?machine=attic", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/tokens", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/tokens?machine=a/b", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/tokens?machine=attic", http.StatusOK},
		{http.MethodDelete, "/comfyhub/tokens?machine=attic", http.StatusOK},
		{http.MethodDelete, "/comfyhub/tokens?machine=attic", http.StatusNotFound},
		{http.MethodGet, "/comfyhub/keys", http.StatusOK},
		{http.MethodPut, "/comfyhub/keys?name=ada", http.StatusMethodNotAllowed},
		{http.MethodPost, "/comfyhub/keys", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&weigth=2", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&name=bob", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&weight=NaN", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&running=99999999999", http.StatusBadRequest},
		{http.MethodPost, "/comfyhub/keys?name=ada&expires=1d", http.StatusOK},
		{http.MethodPost, "/comfyhub/keys?name=ada", http.StatusConflict},
		{http.MethodDelete, "/comfyhub/keys?name=ada", http.StatusOK},
		{http.MethodDelete, "/comfyhub/keys?name=ada", http.StatusNotFound},
	} {
		status, answer := s.call(tc.method, s.admin, tc.path, "")
		require.Equal(t, tc.want, status, "%s %s: %s", tc.method, tc.path, answer)
	}

	for _, step := range []struct{ verb, state string }{{"drain", "draining"}, {"resume", "idle"}} {
		status, answer := s.call(http.MethodPost, s.admin, "/comfyhub/"+step.verb+"?instance="+name, "")
		require.Equal(t, http.StatusOK, status, answer)
		s.await(func() bool {
			_, answer := s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
			var now []struct{ State string }
			return json.Unmarshal([]byte(answer), &now) == nil && len(now) == 1 && now[0].State == step.state
		})
	}
}

// A verb rotates the keys, and neither its answer nor the configuration that
// Caddy shows has a secret in it.
func TestRotateKeys(t *testing.T) {
	const secret = "a secret that only the operator has"
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	s := newSite(t)
	s.start("secret {file." + file + "}")
	for n := range 2 {
		status, body := s.call(http.MethodPost, s.admin, "/comfyhub/rotate-keys", "")
		require.Equal(t, http.StatusOK, status, body)
		var rotation struct {
			Key  string
			From int64 `json:"used_from"`
			Keys int
		}
		require.NoError(t, json.Unmarshal([]byte(body), &rotation))
		require.Equal(t, n+2, rotation.Keys)
		require.Len(t, rotation.Key, 16)
		require.Greater(t, rotation.From, time.Now().Unix())
	}
	require.Len(t, must.Get(os.ReadDir(filepath.Join(s.data, "files", "comfyhub-keys")))(t), 3)
	status, config := s.call(http.MethodGet, s.admin, "/config/", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, config, "{file."+file+"}")
	require.NotContains(t, config, secret)

	// A reload that changes it needs no restart; one that forgets it is refused.
	require.Error(t, s.load(""))
	require.NoError(t, s.load("secret {$NEW:another-secret-of-the-operator} {file."+file+"}"))
	require.NoError(t, s.load("secret another-secret-of-the-operator"))
	require.Error(t, s.load("secret {file."+file+"}"))
	require.Error(t, s.load("secret {file."+file+".mistyped}"))
}

// A configuration without a hub: the endpoint says so instead of failing.
func TestAdminWithoutHub(t *testing.T) {
	s := newSite(t)
	require.NoError(t, caddy.Load([]byte(`{"admin": {"listen": "`+s.admin+`", "config": {"persist": false}}}`), true))
	status, answer := s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, "no hub is running")
}

// exitCode is the error of a program that ends.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprint("exit ", int(e)) }

// command runs a command of `comfyhub`.
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
