package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs/programstest"
)

// block is a fenced block of a page: commands, with what they print.
type block struct{ commands, prints string }

var fenced = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// blocksOf reads the blocks of a page. One of text is what the commands before it print.
func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	text := must.Get(os.ReadFile(page))(t)
	var blocks []block
	for _, found := range fenced.FindAllStringSubmatch(string(text), -1) {
		if found[1] == "sh" {
			blocks = append(blocks, block{commands: found[2]})
		} else {
			blocks[len(blocks)-1].prints = found[2]
		}
	}
	return blocks
}

// matches compares what commands printed with what their page says: "..." stands for anything.
func matches(t *testing.T, b block, printed string) {
	t.Helper()
	pattern := strings.ReplaceAll(regexp.QuoteMeta(b.prints), `\.\.\.`, `.*`)
	require.Regexp(t, "^"+pattern+"$", printed, "after\n%s", b.commands)
}

// Somebody who types the commands of the tutorial into an empty folder gets what the page
// says: a hub with TLS and a login, three machines, a picture, and an alert when one dies.
func TestTutorial(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "openssl", "prometheus"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("the tutorial needs ", program)
		}
	}
	root := must.Get(filepath.Abs(".."))(t)
	blocks := blocksOf(t, filepath.Join(root, "docs", "tutorial.md"))
	require.Contains(t, blocks[0].commands, "make build", "the programs are built already")
	blocks = blocks[1:]

	// The page's ports are free in a network of its own.
	inside := enclose(t, "127.0.0.1:1")
	const mark = "\x1e"
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for _, b := range blocks {
		fmt.Fprintf(&script, "printf '%s'\n%s", mark, b.commands)
	}
	home := t.TempDir()
	cmd := exec.Command("bash", "-c", script.String()) // #nosec G204 -- our own page
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "SRC="+hasty(t, root), "PATH="+filepath.Dir(programstest.Built(t).Caddy)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second // for background processes that have its standard output
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	inside.within(cmd.Start)
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	late := time.AfterFunc(8*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	require.NoError(t, cmd.Wait(), "%s\n%s%s", out.String(), complaints.String(), logsIn(filepath.Join(home, "fleet")))

	printed := strings.Split(out.String(), mark)[1:]
	require.Len(t, printed, len(blocks))
	for i, b := range blocks {
		matches(t, b, printed[i])
	}
	require.Equal(t, "PNG", string(must.Get(os.ReadFile(filepath.Join(home, "fleet", "pictures", "red_00001_.png")))(t)[1:4]))
}

// hasty is a copy of what the tutorial uses of the tree. Prometheus looks every second in it,
// and the machine that dies has two seconds to come back instead of two minutes.
func hasty(t *testing.T, root string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(folder, "examples", "jobs"), os.DirFS(filepath.Join(root, "examples", "jobs"))))
	require.NoError(t, os.CopyFS(filepath.Join(folder, "docker", "prometheus"), os.DirFS(filepath.Join(root, "docker", "prometheus"))))
	for name, change := range map[string]struct{ from, to string }{
		"prometheus.yml":                {`_interval: 10s`, `_interval: 1s`},
		"prometheus/comfyhub.rules.yml": {`(alert: ComfyHubServerOffline\n.*\n +for:) 2m`, `$1 2s`},
	} {
		text := must.Get(os.ReadFile(filepath.Join(root, "docker", name)))(t)
		faster := regexp.MustCompile(change.from).ReplaceAll(text, []byte(change.to))
		require.NotEqual(t, string(text), string(faster), name)
		require.NoError(t, os.WriteFile(filepath.Join(folder, "docker", name), faster, 0o600))
	}
	return folder
}

// logsIn returns the ends of the logs in a folder.
func logsIn(folder string) string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(folder, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // #nosec G304 -- our own
		fmt.Fprintf(&all, "== %s\n%s\n", filepath.Base(file), text[max(0, len(text)-2000):])
	}
	return all.String()
}

// enclosure is a network of its own, with nothing but loopback. What runs in it can reach
// one address outside, by way of its gateway, and nobody can reach into it.
type enclosure struct {
	t  *testing.T
	do chan func()
	// gateway is where the hub is, as seen from inside.
	gateway string
}

// enclose makes a network from which only a TCP address outside can be dialed. It skips the
// test where that takes rights that the test has not.
func enclose(t *testing.T, outside string) *enclosure {
	t.Helper()
	e := &enclosure{t: t, do: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the network
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = upLoopback()
		}
		entered <- err
		for f := range e.do {
			f()
		}
	}()
	t.Cleanup(func() { close(e.do) })
	if err := <-entered; err != nil {
		t.Skip("a network namespace takes root: ", err)
	}
	var inside net.Listener
	e.within(func() (err error) { inside, err = net.Listen("tcp", "127.0.0.1:80"); return err })
	t.Cleanup(func() { inside.Close() })
	e.gateway = "http://" + inside.Addr().String()
	go forward(inside, outside)
	return e
}

// within does something inside. Programs that it starts run there.
func (e *enclosure) within(f func() error) {
	e.t.Helper()
	done := make(chan error)
	e.do <- func() { done <- f() }
	require.NoError(e.t, <-done)
}

// upLoopback switches on the loopback interface of a new network.
func upLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// forward passes on what is dialed at a listener, until that is closed.
func forward(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				defer in.Close()
				_, _ = io.Copy(in, out)
			}()
			_, _ = io.Copy(out, in)
		}()
	}
}
