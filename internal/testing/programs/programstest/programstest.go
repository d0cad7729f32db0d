// Package programstest gives tests the programs of this repository: built once,
// killed at the end of each test, with the ends of their logs where it failed.
package programstest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// folder is where the programs of this process lie.
func folder() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("comfyhub-programs-%d", os.Getpid()))
}

// built are the programs of this tree.
var built = sync.OnceValues(func() (programs.Set, error) {
	tree, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/comfyhub/comfyhub").Output()
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
	return programs.Build(strings.TrimSpace(string(tree)), folder())
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

// sideBySide is how many tests of a package run at once, for each of Go's threads. Most of
// what they do is wait for programs that start, notice a death or work in simulated seconds.
const sideBySide = 4

// SideBySide has more tests of a package run side by side than Go would by itself, and than
// -parallel says, which is meant for all packages; only -parallel 1 is left alone. It is for a
// TestMain, where most tests wait for programs.
func SideBySide() {
	flag.Parse()
	given, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	if err != nil || given == 1 && runtime.GOMAXPROCS(0) > 1 {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(max(given, sideBySide*runtime.GOMAXPROCS(0)))); err != nil {
		panic(err) // the flag is Go's own
	}
}

// Main runs the tests of a package side by side and removes what Built has built.
func Main(m *testing.M) {
	SideBySide()
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
