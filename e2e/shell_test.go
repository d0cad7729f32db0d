package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// The hub's own program is a client, too: it submits from a pipe, stores what comes, and
// its exit codes reach the shell.
func TestCommandsForPeople(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	run := f.command
	const workflow = `{"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 5}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "ComfyUI"}}}`
	stored, code := run(workflow, "submit", "-", "--set", "1.color=7", "--out", filepath.Join(t.TempDir(), "out"))
	require.Zero(t, code)
	require.Equal(t, "PNG", string(must.Get(os.ReadFile(stored))(t)[1:4]))

	id, code := run(workflow, "submit", "-")
	require.Zero(t, code)
	_, code = run("", "logs", "-f", id)
	require.Zero(t, code)
	shown, code := run("", "status", id)
	require.Zero(t, code)
	require.Contains(t, shown, "completed")
	shown, code = run("", "check", "--address", f.Admin)
	require.Zero(t, code, shown)
	require.Contains(t, shown, "ok       instances  the only instance is healthy")
	for _, c := range []struct {
		code int
		args []string
	}{{1, []string{"status", "none"}}, {2, []string{"submit"}}, {2, []string{"status", "--none"}}, {1, []string{"none"}}, {4, []string{"status", id, "--hub", "http://127.0.0.1:1"}}} {
		_, code = run("", c.args...)
		require.Equal(t, c.code, code, c.args)
	}
}

// Where another program has the hub's port, the hub says so at each start, whether Caddy starts the
// hub or its web server first.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	set := programstest.Built(t)
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = taken.Close() })
	for range 8 {
		cmd := exec.Command(set.Caddy, "run", "--config", set.Caddyfile, "--adapter", "caddyfile") // #nosec G204 -- our own program
		cmd.Env = append(os.Environ(), "COMFYHUB_ADDR="+taken.Addr().String(), "COMFYHUB_OPERATORS="+must.Get(freeport.Address())(t),
			"COMFYHUB_ADMIN="+must.Get(freeport.Address())(t), "COMFYHUB_GOSSIP="+must.Get(freeport.Address())(t), "COMFYHUB_DATA="+t.TempDir())
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "another program already listens at "+taken.Addr().String())
		require.Contains(t, string(out), "COMFYHUB_ADDR=127.0.0.1:8100")
	}
}

// command runs a command of the hub's program.
func (f *fleet) command(in string, args ...string) (shown string, code int) {
	f.t.Helper()
	cmd := exec.Command(f.Set.Caddy, args...) // #nosec G204 -- our own program
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "COMFYHUB_URL="+f.URL(""))
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		var exited *exec.ExitError
		require.ErrorAs(f.t, err, &exited)
	}
	f.t.Log(errors.String())
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// A hub whose queue was lost does not know the files of its storage. It says so until the
// operator gives it the storage.
func TestAdoptStorage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	f.succeeded([]string{f.submit(0.1, 1), f.submit(0.1, 2)})
	shown, code := f.command("", "adopt-storage", "--address", f.Admin)
	require.Zero(t, code)
	require.Equal(t, "the storage belongs to the hub's Redis already", shown)

	f.Hub.Kill()
	journal := must.Get(filepath.Glob(filepath.Join(f.Data, "queue.aof*")))(t)
	require.NotEmpty(t, journal)
	for _, name := range journal {
		require.NoError(t, os.Remove(name))
	}
	f.startHub()
	f.idle(1)
	const found = "the storage belongs to another Redis, or this one has lost everything"
	shown, code = f.command("", "check", "--address", f.Admin)
	require.NotZero(t, code)
	require.Contains(t, shown, found)
	shown, code = f.command("", "adopt-storage", "--address", f.Admin)
	require.Zero(t, code)
	require.Contains(t, shown, found)
	require.Contains(t, shown, "of 2 files that were looked at, Redis does not know 2")
	require.Contains(t, shown, "nothing was changed")
	f.succeeded([]string{f.submit(0.1, 3)})
	shown, code = f.command("", "adopt-storage", "--yes", "--address", f.Admin)
	require.Zero(t, code)
	require.Contains(t, shown, "the storage belongs to the hub's Redis now")
	shown, _ = f.command("", "check", "--address", f.Admin)
	require.NotContains(t, shown, found)
}

var (
	shellBlock = regexp.MustCompile("(?ms)^```(?:sh|bash|console)\n(.*?)^```$")
	// ours is a program of ours with its arguments, up to what the shell takes for itself.
	ours = regexp.MustCompile(`(?:^|[;&|(]|\bdo |\buntil )\s*(?:sudo )?(?:\./|bin/|/usr/local/bin/)?(comfyhub|agent|botbridge)((?: +(?:"[^"]*"|'[^']*'|[^\s"'|;&<>()])+)+)`)
	// target is a target of the Makefile.
	target = regexp.MustCompile(`(?m)^make ([a-z-]+)`)
)

// commandsOf returns the commands of our programs in a page, as words.
func commandsOf(page string) (commands [][]string) {
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			for _, found := range ours.FindAllStringSubmatch(line, -1) {
				commands = append(commands, append(strings.Fields(found[1]), strings.Fields(found[2])...))
			}
		}
	}
	return commands
}

// Each command of our programs that the docs show is one that they have, with flags that they
// have; so is each target of make.
func TestCommandsInDocs(t *testing.T) {
	t.Parallel()
	set := programstest.Built(t)
	program := map[string]string{"comfyhub": set.Caddy, "agent": set.Agent, "botbridge": set.Bridge}
	pages := must.Get(filepath.Glob("../docs/*.md"))(t)
	makefile := must.Get(os.ReadFile("../Makefile"))(t)
	shown := 0
	for _, name := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		page := must.Get(os.ReadFile(name))(t)
		for _, found := range target.FindAllStringSubmatch(string(page), -1) {
			require.Regexp(t, `(?m)^`+found[1]+`( [a-z%-]+)*:|^`+strings.SplitN(found[1], "-", 2)[0]+`-%:`, string(makefile), "%s: make %s", name, found[1])
		}
		for _, words := range commandsOf(string(page)) {
			if words[0] == "agent" && words[1] == "service" || words[1] == "{" {
				continue // on Windows only; a word of the Caddyfile
			}
			shown++
			// Flags are read before --help is, so that an unknown one is an error.
			said, err := exec.Command(program[words[0]], append(words[1:len(words):len(words)], "--help")...).CombinedOutput() // #nosec G204 -- our own pages
			require.NoError(t, err, "%s: %s\n%s", name, strings.Join(words, " "), said)
			require.Contains(t, string(said), "Usage:\n  "+strings.Join(words[:2], " "), "%s: %s", name, strings.Join(words, " "))
		}
	}
	require.Greater(t, shown, 15)
}

// Under Caddy's name the hub is Caddy with one module more; under its own, ComfyHub's commands are
// beside Caddy's.
func TestNamesOfTheProgram(t *testing.T) {
	t.Parallel()
	set := programstest.Built(t)
	caddy := filepath.Join(t.TempDir(), "caddy")
	require.NoError(t, os.Symlink(set.Caddy, caddy))
	for call, usage := range map[string]string{
		"comfyhub run": "comfyhub run", "comfyhub status": "comfyhub status", "comfyhub token add": "comfyhub token add", "comfyhub comfyhub status": "comfyhub comfyhub status",
		"caddy run": "caddy run", "caddy comfyhub status": "caddy comfyhub status", "caddy comfyhub-token add": "caddy comfyhub-token add",
	} {
		words := strings.Fields(call)
		said, err := exec.Command(map[string]string{"caddy": caddy, "comfyhub": set.Caddy}[words[0]], append(words[1:], "--help")...).CombinedOutput() // #nosec G204 -- our own program
		require.NoError(t, err, "%s: %s", call, said)
		require.Contains(t, string(said), "Usage:\n  "+usage, call)
	}
	said := must.Get(exec.Command(set.Caddy, "--help").CombinedOutput())(t) // #nosec G204 -- our own program
	for _, part := range []string{"$ comfyhub run", "\n  drain ", "\n  token ", "\n  reload "} {
		require.Contains(t, string(said), part)
	}
	require.Regexp(t, `^ComfyHub \S+, Caddy v2\.`, string(must.Get(exec.Command(set.Caddy, "version").Output())(t))) // #nosec G204 -- our own program
	require.Regexp(t, `^v2\.`, string(must.Get(exec.Command(caddy, "version").Output())(t)))                         // #nosec G204 -- our own program
	var failed *exec.ExitError
	_, err := exec.Command(caddy, "status").CombinedOutput() // #nosec G204 -- our own program
	require.ErrorAs(t, err, &failed)
	_, err = exec.Command(set.Caddy, "status", "--hub", "nonsense").CombinedOutput() // #nosec G204 -- our own program
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 2, failed.ExitCode(), "a wrong flag")
}

// The example of docs/job-api.md works as it is written, and says why a job has failed.
func TestExampleOfThePlainAPI(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	f := newFleet(t, "embedded")
	f.startHub()
	f.startAgent("gpu", 1)
	f.idle(1)
	run := func(fail string) (string, error) {
		file := filepath.Join(t.TempDir(), "workflow_api.json")
		require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`{
			"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 7}},
			"2": {"class_type": "SimulatedWork", "inputs": {"image": ["1", 0], "seconds": 1, "steps": 5, "fail": %q}},
			"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "example"}}}`, fail)), 0o600))
		cmd := exec.Command(python, "../examples/jobs/submit.py", file) // #nosec G204 -- our own example
		cmd.Env = append(os.Environ(), "HUB="+f.URL(""))
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		return string(out) + said.String(), err
	}
	said, err := run("none")
	require.NoError(t, err, said)
	require.Contains(t, said, "/view?filename=example_")
	said, err = run("error")
	require.Error(t, err)
	require.Contains(t, said, "simulated", said)
}

// The workers in examples/ work the queue of the built hub.
func TestExampleWorkers(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	f := newFleet(t, "embedded")
	f.startHub()
	token := must.Get(os.ReadFile(f.token("attic")))(t)
	start := func(name string, args ...string) {
		must.Get(f.Start(programs.Spec{
			Name: name, Path: python, Args: append([]string{"../examples/workers/" + name}, args...),
			Env: []string{"HUB=" + f.URL(""), "TOKEN=" + strings.TrimSpace(string(token))},
		}))(t)
	}
	start("comfyui_worker.py", f.simulate("attic"))
	start("plain_worker.py")
	f.idle(2)
	f.eventually(func() bool {
		var image, text map[string]any
		return f.get("/object_info/EmptyImage", &image) && f.get("/object_info/Uppercase", &text) && len(image)+len(text) == 2
	}, "the hub knows what they can run")
	f.succeeded([]string{f.submit(1, 1), f.submit(1, 2)})
	resp := must.Get(http.Post(f.URL("/submit"), "application/json", strings.NewReader(`{"workflow": {"1": {"class_type": "Uppercase", "inputs": {"text": "a fox"}}}}`)))(t)
	defer resp.Body.Close()
	var accepted struct{ ID string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&accepted))
	id := accepted.ID
	require.True(t, f.get("/wait/"+id+"?timeout=60", &accepted))
	var history map[string]struct {
		Outputs map[string]struct{ Text []string }
	}
	require.True(t, f.get("/history/"+id, &history))
	require.Equal(t, []string{"A FOX"}, history[id].Outputs["1"].Text)
}
