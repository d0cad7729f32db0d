package docker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// units returns copies of the systemd units in which each program exists: verify looks for
// them.
func units(t *testing.T) []string {
	t.Helper()
	_, err := analyze(t, "--version")
	require.NoError(t, err)
	paths, err := filepath.Glob("systemd/*.service")
	require.NoError(t, err)
	require.Len(t, paths, 3)
	folder := t.TempDir()
	program := regexp.MustCompile(`(?m)^(Exec\w+=)/usr/local/bin/\w+`)
	copies := make([]string, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		copies[i] = filepath.Join(folder, filepath.Base(path))
		require.NoError(t, os.WriteFile(copies[i], program.ReplaceAll(text, []byte("${1}/bin/true")), 0o600))
	}
	return copies
}

// analyze returns what systemd-analyze says, and its error.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

func TestUnitsAreValid(t *testing.T) {
	t.Parallel()
	for _, unit := range units(t) {
		out, err := analyze(t, "verify", "--man=no", unit)
		require.NoError(t, err, out)
		require.Empty(t, out, "words that systemd does not know are only warnings")
	}
	misspelt := filepath.Join(t.TempDir(), "misspelt.service")
	require.NoError(t, os.WriteFile(misspelt, []byte("[Service]\nExecStart=/bin/true\nNoNewPrivilege=yes\n"), 0o600))
	out, _ := analyze(t, "verify", "--man=no", misspelt)
	require.Contains(t, out, "NoNewPrivilege")
}

func TestUnitsAreHardened(t *testing.T) {
	t.Parallel()
	if help, _ := analyze(t, "--help"); !strings.Contains(help, "--offline") {
		t.Skip("systemd-analyze judges only running services here")
	}
	judge := func(unit, most string) (string, error) {
		return analyze(t, "security", "--no-pager", "--offline=true", "--threshold="+most, unit)
	}
	for _, unit := range units(t) {
		out, err := judge(unit, "25")
		require.NoError(t, err, out)
		out, err = judge(unit, "5")
		require.Error(t, err, "the threshold counts: %s", out)
	}
}

// Each service may take as long to stop as its program does, and none is given up.
func TestUnitsWaitForTheirPrograms(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]string{"comfyhub": "40s", "comfyhub-agent": "75s", "comfyhub-botbridge": "60s"} {
		text, err := os.ReadFile("systemd/" + name + ".service")
		require.NoError(t, err)
		for _, line := range []string{"TimeoutStopSec=" + stop, "Restart=always", "StartLimitIntervalSec=0", "DynamicUser=yes", "NoNewPrivileges=yes"} {
			require.Contains(t, string(text), "\n"+line+"\n", name)
		}
	}
}
