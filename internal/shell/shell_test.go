package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience of tests bounds every wait.
const testPatience = time.Minute

// picture is a workflow that makes a small picture.
const picture = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 255}},
	"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}, "_meta": {"title": "The result"}}}`

// work is a workflow that keeps a server busy for some seconds, and can fail.
func work(seconds int, fail string) string {
	return fmt.Sprintf(`{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 32, "batch_size": 1, "color": 1}},
		"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": %d, "steps": 720, "fail": %q, "nonce": 1}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "ComfyUI"}}}`, seconds, fail)
}

// newHub starts a hub with one simulated server. A user who logs in is a tenant.
func newHub(t *testing.T) string {
	t.Helper()
	server := must.Get(sim.New(sim.Config{TimeScale: 0.02}))(t)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, end := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(ctx, ln) })
	h := hub.New(config.Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	all := mount.New(h)
	require.NoError(t, h.Start(t.Context(), config.Settings{
		Logger: slog.New(slog.DiscardHandler), Instances: []string{"http://" + ln.Addr().String()},
	}))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		all.Serve(w, r, api.Visitor{IP: "127.0.0.1", Tenant: user})
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testPatience)
		defer cancel()
		require.NoError(t, h.Close(ctx))
		web.CloseClientConnections()
		web.Close()
		end()
		served.Wait()
		server.Close()
	})
	// A hub that knows no node class yet refuses no workflow.
	require.Eventually(t, func() bool { return h.Classes.Known("EmptyImage") != nil }, testPatience, 5*time.Millisecond)
	return web.URL
}

// exitError is the error of a test's program.
type exitError int

func (e exitError) Error() string { return fmt.Sprint("exit ", int(e)) }

// result is what a command has done.
type result struct {
	code        int
	out, errors string
}

// buffer may be written and read at once.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// run runs a command as a program would, with a workflow as its standard input. While it
// runs, errors gets what it says.
func run(ctx context.Context, in string, errors *buffer, args ...string) result {
	var out buffer
	parent := &cobra.Command{Use: "comfyhub"}
	AddCommands(parent, Options{
		Exit:    func(code int) error { return exitError(code) },
		Resolve: func(address string) (string, string, error) { return "tcp", address, nil },
	})
	parent.SetArgs(args)
	parent.SetIn(strings.NewReader(in))
	parent.SetOut(&out)
	parent.SetErr(errors)
	r := result{}
	if err := parent.ExecuteContext(ctx); err != nil {
		code, _ := err.(exitError) //nolint:errorlint // it is not wrapped
		r.code = int(code)
	}
	r.out, r.errors = out.String(), errors.String()
	return r
}

func call(t *testing.T, in string, args ...string) result {
	t.Helper()
	return run(t.Context(), in, &buffer{}, args...)
}

// One submits from a pipe, waits, and has the picture.
func TestSubmit(t *testing.T) {
	t.Parallel()
	url := newHub(t)
	folder := filepath.Join(t.TempDir(), "new", "pictures")
	r := call(t, picture, "submit", "-", "--hub", url, "--set", "The result.filename_prefix=a/fox", "--set", "1.width=128", "--out", folder)
	require.Equal(t, ExitDone, r.code, r.errors)
	stored := strings.TrimSpace(r.out)
	require.Equal(t, filepath.Join(folder, "a"), filepath.Dir(stored))
	require.Contains(t, filepath.Base(stored), "fox")
	data := must.Get(os.ReadFile(stored))(t)
	require.Equal(t, "PNG", string(data[1:4]))
	require.Equal(t, byte(128), data[19], "the width")
	require.Contains(t, r.errors, "completed")
	require.NotContains(t, r.errors, "\x1b", "no terminal, no escapes")

	// A file and its folder are there: nothing is overwritten unless asked.
	file := filepath.Join(t.TempDir(), "workflow.json")
	require.NoError(t, os.WriteFile(file, []byte("\xef\xbb\xbf"+picture), 0o600))
	r = call(t, "", "submit", file, "--hub", url, "--key", "once")
	require.Equal(t, ExitDone, r.code, r.errors)
	id := strings.TrimSpace(r.out)
	again := call(t, "", "submit", file, "--hub", url, "--key", "once", "--out", folder)
	require.Equal(t, ExitDone, again.code, again.errors)
	again = call(t, "", "submit", file, "--hub", url, "--key", "once", "--out", folder)
	require.Equal(t, ExitUnknown, again.code)
	require.Contains(t, again.errors, "--force")
	again = call(t, "", "submit", file, "--hub", url, "--key", "once", "--out", folder, "--force", "--json")
	require.Equal(t, ExitDone, again.code, again.errors)
	var shown Job
	require.NoError(t, json.Unmarshal([]byte(again.out), &shown))
	require.Equal(t, id, shown.ID, "the same job")

	r = call(t, "", "status", id, "--hub", url)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Regexp(t, `^completed.*\nhttp://.*/view\?`, r.out)
	r = call(t, "", "logs", "--hub", url)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Equal(t, 2, strings.Count(r.out, "completed"), r.out)
	r = call(t, "", "logs", "-f", id, "--hub", url)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Contains(t, r.out, id)
	r = call(t, "", "cancel", id, "--hub", url)
	require.Equal(t, ExitFailed, r.code)
	require.Contains(t, r.errors, "completed")
}

// Exit codes say what has become of a job.
func TestExitCodes(t *testing.T) {
	url := newHub(t)
	closed := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	file := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	type row struct {
		args []string
		in   string
		code int
		says string
	}
	beside.Cases(t, map[string]row{
		"fails":             {[]string{"submit", "-", "--wait"}, work(1, "error"), ExitFailed, "failed:"},
		"is refused":        {[]string{"submit", "-"}, strings.Replace(picture, "64", `"x"`, 1), ExitFailed, "node 1 (EmptyImage)"},
		"priority":          {[]string{"submit", "-", "--priority", "500"}, picture, ExitFailed, "priority"},
		"unknown node":      {[]string{"submit", "-", "--set", "9.text=x"}, picture, ExitUsage, "no such node"},
		"unknown input":     {[]string{"submit", "-", "--set", "1.text=x"}, picture, ExitUsage, "width, height"},
		"not a number":      {[]string{"submit", "-", "--set", "1.width=x"}, picture, ExitUsage, "must be a number"},
		"no such file":      {[]string{"submit", "/nowhere.json"}, "", ExitUsage, "/nowhere.json"},
		"no such input":     {[]string{"submit", "-", "--file", "1.width=/nowhere.png"}, picture, ExitUsage, "/nowhere.png"},
		"no JSON":           {[]string{"submit", "-"}, "fox", ExitUsage, "not JSON"},
		"no workflow":       {[]string{"submit"}, "", ExitUsage, "usage: "},
		"unknown flag":      {[]string{"submit", "-", "--wiat"}, picture, ExitUsage, "--wiat"},
		"unknown command":   {[]string{"sbumit", "-"}, "", ExitUsage, "sbumit"},
		"no such job":       {[]string{"status", "none"}, "", ExitFailed, "Job not found"},
		"no such job ends":  {[]string{"logs", "-f", "none"}, "", ExitFailed, "Job not found"},
		"no such cancelled": {[]string{"cancel", "none"}, "", ExitFailed, "Job not found"},
		"no id":             {[]string{"status", "../stats"}, "", ExitUsage, "not the id"},
		"no hub":            {[]string{"submit", "-", "--hub", "http://" + closed.Addr().String()}, picture, ExitUnknown, "refused"},
		"no URL":            {[]string{"submit", "-", "--hub", "localhost"}, picture, ExitUsage, "must look like"},
		"a login in a URL":  {[]string{"submit", "-", "--hub", "http://ann:secret@localhost"}, picture, ExitUsage, "--user"},
		"no password":       {[]string{"status", "x", "--user", "ann"}, "", ExitUsage, passwordVariable},
		"an empty secret":   {[]string{"status", "x", "--token-file", file}, "", ExitUsage, "is empty"},
		"two logins":        {[]string{"status", "x", "--token-file", file, "--user", "ann"}, "", ExitUsage, "not both"},
	}, func(t *testing.T, c row) {
		r := call(t, c.in, append([]string{"--hub", url}, c.args...)...)
		require.Equal(t, c.code, r.code, r.errors)
		require.Contains(t, r.errors, c.says)
	})
}

// follow starts a command that waits for a job, and returns its id once it says so.
func follow(t *testing.T, url, workflow string, more ...string) (id string, interrupt context.CancelFunc, ended <-chan result) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var errors buffer
	done := make(chan result, 1)
	go func() {
		done <- run(ctx, workflow, &errors, append([]string{"submit", "-", "--wait", "--hub", url}, more...)...)
	}()
	if !assert.Eventually(t, func() bool { return strings.Contains(errors.String(), "processing") }, testPatience, 5*time.Millisecond) {
		require.Fail(t, "does not run", errors.String())
	}
	_, err := fmt.Sscanf(errors.String(), "job %s", &id)
	require.NoError(t, err)
	return id, cancel, done
}

// Whoever interrupts a command that waits leaves the job alone, unless they say otherwise.
// Whoever cancels a job ends the commands that wait for it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	url := newHub(t)
	id, interrupt, ended := follow(t, url, work(3600, "none"))
	interrupt()
	r := <-ended
	require.Equal(t, ExitInterrupted, r.code, r.errors)
	require.Contains(t, r.errors, "cancel "+id)
	require.Contains(t, call(t, "", "status", id, "--hub", url).out, StatusProcessing)
	r = call(t, "", "cancel", id, "--hub", url)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Equal(t, ExitCancelled, call(t, "", "logs", "-f", id, "--hub", url).code)

	id, _, ended = follow(t, url, work(3500, "none"))
	require.Equal(t, ExitDone, call(t, "", "cancel", id, "--hub", url).code)
	require.Equal(t, ExitCancelled, (<-ended).code)

	id, interrupt, ended = follow(t, url, work(3400, "none"), "--cancel-on-interrupt")
	interrupt()
	r = <-ended
	require.Equal(t, ExitCancelled, r.code, r.errors)
	require.Equal(t, ExitCancelled, call(t, "", "logs", "-f", id, "--hub", url).code)
}

// Users who log in see only what is theirs. Their passwords come from files.
func TestLogins(t *testing.T) {
	t.Parallel()
	url := newHub(t)
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	ann := []string{"--hub", url, "--user", "ann", "--password-file", file}
	r := call(t, picture, append(ann, "submit", "-")...)
	require.Equal(t, ExitDone, r.code, r.errors)
	id := strings.TrimSpace(r.out)
	require.Equal(t, ExitDone, call(t, "", append(ann, "logs", "-f", id)...).code)
	require.Contains(t, call(t, "", append(ann, "logs")...).out, id)
	bob := []string{"--hub", url, "--user", "bob", "--password-file", file}
	require.Equal(t, ExitFailed, call(t, "", append(bob, "status", id)...).code)
	require.Empty(t, call(t, "", append(bob, "logs")...).out)
}
