package docker_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// A key, and how systemd reads it from a file.
const (
	fleetKey       = "a key of the fleet with 'quotes', \\ and $PATH"
	fleetKeyQuoted = "a key of the fleet with 'quotes', \\\\ and \\$PATH"
)

// box is a GPU machine for install.sh: a folder to install into, and fakes of the programs
// that would change this machine.
type box struct {
	t                       *testing.T
	root, release, fakes    string
	key, token, calls, unit string
}

func newBox(t *testing.T) *box {
	t.Helper()
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("install.sh is for Linux")
	}
	b := &box{t: t, root: t.TempDir(), release: t.TempDir(), fakes: t.TempDir()}
	b.calls = filepath.Join(b.fakes, "calls")
	b.key, b.token = b.secret("key", fleetKey), b.secret("token", "attic:0123456789abcdef")
	b.fake("systemctl", "exit 0")
	b.fake("sleep", "exit 0")
	b.fake("nvidia-smi", `echo "0, NVIDIA GeForce RTX 4090, 24564 MiB"`)
	unit := must.Get(os.ReadFile("systemd/comfyhub-agent.service"))(t)
	b.unit = string(unit)
	b.publish("#!/bin/sh\necho agent version v1.2.3\n")
	return b
}

func (b *box) secret(name, text string) string {
	path := filepath.Join(b.fakes, name)
	require.NoError(b.t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	return path
}

// fake puts a program first on the PATH that notes how it was called.
func (b *box) fake(name, script string) {
	text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\n%s\n", name, b.calls, script)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.fakes, name), []byte(text), 0o700))
}

// publish makes a release with this agent.
func (b *box) publish(agent string) {
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	for name, text := range map[string]string{"agent": agent, "systemd/comfyhub-agent.service": b.unit} {
		require.NoError(b.t, files.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}))
		must.Get(files.Write([]byte(text)))(b.t)
	}
	require.NoError(b.t, files.Close())
	require.NoError(b.t, packed.Close())
	name := "comfyhub-agent_linux_" + runtime.GOARCH + ".tar.gz"
	require.NoError(b.t, os.WriteFile(filepath.Join(b.release, name), archive.Bytes(), 0o600))
	sum := sha256.Sum256(archive.Bytes())
	require.NoError(b.t, os.WriteFile(filepath.Join(b.release, "checksums.txt"), []byte(hex.EncodeToString(sum[:])+"  "+name+"\n"), 0o600))
}

func (b *box) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), "sh", append([]string{"install.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "DESTDIR="+b.root, "PATH="+b.fakes+":"+os.Getenv("PATH"), "TMPDIR="+b.t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	return cmd
}

func (b *box) install(args ...string) string {
	b.t.Helper()
	out, err := b.command(append([]string{"--from", b.release}, args...)...).CombinedOutput()
	require.NoError(b.t, err, string(out))
	return string(out)
}

func (b *box) refuses(want string, args ...string) {
	b.t.Helper()
	before := b.files()
	out, err := b.command(append([]string{"--from", b.release}, args...)...).CombinedOutput()
	require.Error(b.t, err)
	require.Contains(b.t, string(out), want)
	require.Equal(b.t, before, b.files(), "nothing is changed")
}

// files returns what is installed: modes and texts.
func (b *box) files() map[string]string {
	b.t.Helper()
	found := map[string]string{}
	require.NoError(b.t, filepath.WalkDir(b.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text := must.Get(os.ReadFile(path))(b.t)
		info := must.Get(entry.Info())(b.t)
		found[strings.TrimPrefix(path, b.root)] = fmt.Sprintf("%o %s", info.Mode().Perm(), text)
		return nil
	}))
	return found
}

const (
	settingsFile = "/etc/comfyhub/agent.env"
	secretFile   = "/etc/comfyhub/agent.secret"
	dropIn       = "/etc/systemd/system/comfyhub-agent.service.d/install.conf"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	shellcheck, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("no shellcheck here")
	}
	out, err := exec.CommandContext(t.Context(), shellcheck, "install.sh", "make-keys.sh", "../xcaddy.sh").CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestInstall(t *testing.T) {
	b := newBox(t)
	out := b.install("--join", "hub:7946", "--key-file", b.key, "--comfyui", "left=http://127.0.0.1:1", "--comfyui", "http://127.0.0.1:2")
	require.Contains(t, out, "RTX 4090")
	first := b.files()
	require.Len(t, first, 5)
	require.Equal(t, "755 #!/bin/sh\necho agent version v1.2.3\n", first["/usr/local/bin/agent"])
	require.Equal(t, "644 "+b.unit, first["/etc/systemd/system/comfyhub-agent.service"])
	require.Equal(t, "600 COMFYHUB_GOSSIP_KEY=\""+fleetKeyQuoted+"\"\n", first[secretFile])
	require.Contains(t, first[settingsFile], "600 #")
	require.Contains(t, first[settingsFile], "\nCOMFYHUB_AGENT_JOIN=\"hub:7946\"\nCOMFYHUB_AGENT_COMFYUI=\"left=http://127.0.0.1:1,http://127.0.0.1:2\"\n")
	require.Contains(t, first[dropIn], "\nEnvironmentFile=-/etc/comfyhub/agent.secret\nExecStart=\nExecStart=/usr/local/bin/agent run\n")
	calls := must.Get(os.ReadFile(b.calls))(t)
	require.Equal(t, "systemctl daemon-reload\nsystemctl enable comfyhub-agent.service\nsystemctl restart comfyhub-agent.service\nsleep 3\nsystemctl is-active --quiet comfyhub-agent.service\n",
		strings.Join(strings.SplitAfter(string(calls), "\n")[1:], ""), "after nvidia-smi")
	require.NotContains(t, out+string(calls), "fleet with")

	// Again, without a word: nothing changes.
	b.install()
	require.Equal(t, first, b.files())

	// An upgrade and one setting; what somebody has added stays.
	b.publish("#!/bin/sh\necho agent version v1.3.0\n")
	settings := filepath.Join(b.root, settingsFile)
	require.NoError(t, os.WriteFile(settings, append(must.Get(os.ReadFile(settings))(t), "COMFYHUB_AGENT_STOP_TIMEOUT=5m\n"...), 0o600))
	b.install("--name", "box7", "--no-start")
	second := b.files()
	require.Contains(t, second["/usr/local/bin/agent"], "v1.3.0")
	require.Contains(t, second[settingsFile], "JOIN=\"hub:7946\"\nCOMFYHUB_AGENT_COMFYUI=\"left=http://127.0.0.1:1,http://127.0.0.1:2\"\nCOMFYHUB_AGENT_NAME=\"box7\"\nCOMFYHUB_AGENT_STOP_TIMEOUT=5m\n")

	// To a tunnel: the fleet's key does not stay.
	b.install("--hub", "https://hub.example.com", "--token-file", b.token)
	third := b.files()
	require.Equal(t, "600 COMFYHUB_TOKEN=\"attic:0123456789abcdef\"\n", third[secretFile])
	require.NotContains(t, third[settingsFile], "JOIN")
	require.Contains(t, third[dropIn], "ExecStart=/usr/local/bin/agent pull\n")

	// And away.
	state := filepath.Join(b.root, "var/lib/private/comfyhub-agent")
	require.NoError(t, os.MkdirAll(state, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(state, "box7.key"), nil, 0o600))
	require.Contains(t, b.install("--uninstall"), "kept ")
	require.Equal(t, map[string]string{"/var/lib/private/comfyhub-agent/box7.key": "600 "}, b.files())
	b.install("--uninstall", "--purge")
	require.Empty(t, b.files())
}

func TestInstallRefuses(t *testing.T) {
	b := newBox(t)
	short := b.secret("short", "fifteen bytes..")
	b.refuses("which hub?")
	b.refuses("no argument, because ps shows it", "--join", "hub:7946", "--key", fleetKey)
	b.refuses("unknown option", "--join", "hub:7946", "--unknown")
	b.refuses("needs a value", "--join")
	b.refuses("exclude", "--join", "hub:7946", "--hub", "https://hub")
	b.refuses("no terminal", "--join", "hub:7946")
	b.refuses("16 bytes", "--join", "hub:7946", "--key-file", short)
	b.refuses("no token", "--hub", "https://hub", "--token-file", b.secret("no-token", "anything"))
	b.refuses("characters", "--join", "hub:7946\nLD_PRELOAD=/tmp/x", "--key-file", b.key)
	b.refuses("without TLS", "--join", "hub:7946", "--key-file", b.key, "--from", "http://127.0.0.1:9")
	b.refuses("checksum", "--join", "hub:7946", "--key-file", b.key, "--sha256", strings.Repeat("0", 64))
	require.NoError(t, os.WriteFile(filepath.Join(b.release, "checksums.txt"), []byte(strings.Repeat("0", 64)+"  comfyhub-agent_linux_"+runtime.GOARCH+".tar.gz\n"), 0o600))
	b.refuses("checksum", "--join", "hub:7946", "--key-file", b.key)
	b.publish("#!/no/such/interpreter\n")
	b.refuses("does not run here", "--join", "hub:7946", "--key-file", b.key)
	b.publish("#!/bin/sh\n")
	require.Contains(t, b.install("--join", "hub:7946", "--dry-run"), "would ")
	require.Empty(t, b.files())
}

func TestInstallOfALocalProgram(t *testing.T) {
	b := newBox(t)
	program := filepath.Join(t.TempDir(), "agent")
	text := []byte("#!/bin/sh\necho mine\n")
	require.NoError(t, os.WriteFile(program, text, 0o600))
	b.refuses("checksum", "--join", "hub:7946", "--key-file", b.key, "--binary", program, "--sha256", strings.Repeat("0", 64))
	sum := sha256.Sum256(text)
	b.install("--join", "hub:7946", "--key-file", b.key, "--binary", program, "--sha256", hex.EncodeToString(sum[:]))
	require.Equal(t, "755 "+string(text), b.files()["/usr/local/bin/agent"])
	require.Contains(t, b.files(), "/etc/systemd/system/comfyhub-agent.service")
}

func TestInstallFindsServers(t *testing.T) {
	b := newBox(t)
	start := func(header string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if header != "" {
				w.Header().Set(header, "1")
			}
			if r.URL.Path == "/system_stats" {
				_, _ = w.Write([]byte(`{"system": {"os": "posix", "python_version": "3.12"}, "devices": []}`))
			}
		}))
		t.Cleanup(server.Close)
		// The process that install.sh finds it by.
		where := must.Get(url.Parse(server.URL))(t)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "read line", "/opt/ComfyUI/main.py", "--listen", "--port", where.Port())
		stdin := must.Get(cmd.StdinPipe())(t)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _, _ = stdin.Close(), cmd.Wait() })
		return server.URL
	}
	server, hub := start(""), start("X-ComfyHub")
	out := b.install("--join", "hub:7946", "--key-file", b.key)
	require.Contains(t, out, "  "+server+"\n")
	require.Contains(t, b.files()[settingsFile], server)
	require.NotContains(t, b.files()[settingsFile], hub)
}

// On a terminal the key is asked for, and not shown.
func TestInstallAsks(t *testing.T) {
	b := newBox(t)
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("no script(1) here, which makes terminals")
	}
	cmd := b.command()
	cmd.Path, cmd.Args = script, []string{"script", "-qec", "sh install.sh --join hub:7946 --from " + b.release, "/dev/null"}
	stdin := must.Get(cmd.StdinPipe())(t)
	asked := make(chan struct{})
	out := &watched{want: "The fleet's key", seen: asked}
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	select {
	case <-asked:
	case <-t.Context().Done():
	}
	must.Get(stdin.Write([]byte(fleetKey + "\n")))(t)
	require.NoError(t, cmd.Wait(), out.text.String())
	require.NotContains(t, out.text.String(), "fleet with")
	require.Equal(t, "600 COMFYHUB_GOSSIP_KEY=\""+fleetKeyQuoted+"\"\n", b.files()[secretFile])
}

// watched closes seen once what is written to it contains want.
type watched struct {
	text bytes.Buffer
	want string
	seen chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if w.want != "" && strings.Contains(w.text.String(), w.want) {
		close(w.seen)
		w.want = ""
	}
	return n, err
}

// sign signs the release as a build of a snapshot does, and returns the install.sh and the key
// that come with it.
func (b *box) sign() (script, key string) {
	b.t.Helper()
	sums := filepath.Join(b.release, "checksums.txt")
	cmd := exec.CommandContext(b.t.Context(), "sh", "sign.sh", sums, sums+".sig", "true")
	cmd.Env = append(os.Environ(), "COMFYHUB_SIGNING_KEY=")
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, string(out))
	return filepath.Join(b.release, "install.sh"), filepath.Join(b.release, "release.pub")
}

// A release is signed, and the install.sh of it installs nothing that the same key has not signed.
func TestInstallChecksSignatures(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen")
	}
	b := newBox(t)
	args := []string{"--join", "hub:7946", "--key-file", b.key}
	b.refuses("has no signature", append(args, "--release-key", b.key)...)
	script, key := b.sign()
	b.install(append(args, "--release-key", key)...)
	require.Contains(t, string(must.Get(b.command("--help").Output())(t)), "--release-key")

	run := func() (string, error) {
		cmd := b.command(append(args, "--from", b.release)...)
		cmd.Args[1] = script
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	text, err := run()
	require.NoError(t, err, text)
	b.publish("#!/bin/sh\necho agent of somebody else\n") // with checksums that fit
	text, err = run()
	require.Error(t, err)
	require.Contains(t, text, "not by the key of releases")
	saved := must.Get(os.ReadFile(key))(t)
	old := filepath.Join(t.TempDir(), "old.pub")
	require.NoError(t, os.WriteFile(old, saved, 0o600))
	b.sign() // by another key
	b.refuses("not by the key of releases", append(args, "--release-key", old)...)
	require.NoError(t, os.Remove(filepath.Join(b.release, "checksums.txt.sig")))
	b.refuses("has no signature", append(args, "--release-key", key)...)

	cmd := exec.CommandContext(t.Context(), "sh", "sign.sh", filepath.Join(b.release, "checksums.txt"), filepath.Join(b.release, "x.sig"), "false")
	cmd.Env = append(os.Environ(), "COMFYHUB_SIGNING_KEY=")
	require.Error(t, cmd.Run(), "a release is signed by the project's key")
}
