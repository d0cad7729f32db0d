// Package programstest gives tests the programs of this repository: built once,
// killed at the end of each test, with the ends of their logs where it failed.
package programstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/programs"
)

// folder is where the programs of this process lie.
func folder() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("comfyhub-programs-%d", os.Getpid()))
}

// built are the programs of this tree.
var built = sync.OnceValues(func() (programs.Set, error) {
	file, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return programs.Set{}, err
	}
	// A process with this number that was killed has left its folder.
	if err := os.RemoveAll(folder()); err != nil {
		return programs.Set{}, err
	}
	if err := os.Mkdir(folder(), 0o700); err != nil {
		return programs.Set{}, err
	}
	return programs.Build(filepath.Dir(strings.TrimSpace(string(file))), folder())
})

// Built are the programs of this tree, built at the first call. The package that
// calls it has Main as its TestMain. With -short the test is skipped.
func Built(t testing.TB) programs.Set {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts the real programs")
	}
	set, err := built()
	require.NoError(t, err)
	return set
}

// Main runs the tests of a package and removes what Built has built.
func Main(m *testing.M) {
	code := m.Run()
	os.RemoveAll(folder())
	os.Exit(code)
}

// NewFleet chooses ports for a fleet in a folder of the test. All its programs are
// killed at the end of the test.
func NewFleet(t testing.TB, set programs.Set, redis string) *programs.Fleet {
	t.Helper()
	f, err := programs.NewFleet(set, t.TempDir(), redis)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.Kill()
		if t.Failed() {
			t.Log(f.Tails())
		}
	})
	return f
}
