package system_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/system"
)

var (
	seeds  = flag.Int("seeds", 0, "how many schedules of faults are run")
	first  = flag.Uint64("first", 1, "the first of them")
	clocks = flag.Bool("clocks", false, "let Redis's clock jump")
	storm  = flag.Bool("storm", false, "let hubs and Redis fail all the time, in a larger world")
	logs   = flag.String("logs", "", "a folder for the hubs' logs of seeds that break a promise; they are large")
)

func TestMain(m *testing.M) {
	flag.Parse()
	size.Clocks = *clocks
	if *storm {
		load = system.Load{Sockets: 8, For: 90 * time.Second}
		size = system.Config{Hubs: 3, Comfys: 6, Clients: load.Sockets, Storm: true, Clocks: *clocks}
	}
	leaktest.Main(m)
}

var (
	load = system.Load{Sockets: 4, Pollers: 2, For: 2 * time.Minute}
	size = system.Config{Hubs: 3, Comfys: 3, Agents: 2, Clients: load.Sockets}
)

// run runs a seed's clients against a schedule of faults.
func run(t *testing.T, seed uint64, faults []system.Fault, log *os.File) (ledger *system.Ledger, trace *system.Trace) {
	synctest.Test(t, func(t *testing.T) {
		c := size
		if log != nil {
			c.Log = log
		}
		ledger, trace = system.Run(t, seed, c, load, faults)
	})
	return ledger, trace
}

// TestSeeds runs worlds with faults. A breach comes with the shortest schedule that still
// shows it.
func TestSeeds(t *testing.T) {
	t.Parallel()
	for n := range *seeds {
		seed := *first + uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			faults := system.Faults(seed, size, load.For)
			began := time.Now()
			ledger, trace := run(t, seed, faults, logOf(t, seed))
			t.Logf("%d prompts, %d faults, decisions %s, %v", ledger.Accepted(), len(faults), trace.Hash(), time.Since(began).Round(time.Millisecond))
			if ledger.Accepted() == 0 {
				t.Error("no prompt was accepted")
			}
			if breaches := ledger.Breaches(); len(breaches) > 0 {
				t.Log(breaches)
				report(t, seed, breaches, trace, shorten(t, seed, faults))
			}
		})
	}
}

// shorten drops the faults without which a promise is broken all the same.
func shorten(t *testing.T, seed uint64, faults []system.Fault) []system.Fault {
	for n := range slices.Backward(faults) {
		fewer := slices.Concat(faults[:n], faults[n+1:])
		if ledger, _ := run(t, seed, fewer, nil); len(ledger.Breaches()) > 0 {
			faults = fewer
		}
	}
	return faults
}

func report(t *testing.T, seed uint64, breaches []system.Breach, trace *system.Trace, faults []system.Fault) {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", seed)
	for _, breach := range breaches {
		fmt.Fprintf(&b, "BREACH %v\n", breach)
	}
	b.WriteString("\nthe shortest schedule that breaks a promise:\n")
	for _, f := range faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	fmt.Fprintf(&b, "\nwhat happened to %s:\n%s", breaches[0].About, trace.Of(breaches[0].About))
	t.Error(b.String())
}

// logOf is the file for the logs of a seed, nil if there is to be none. It stays only if the
// seed breaks a promise.
func logOf(t *testing.T, seed uint64) *os.File {
	if *logs == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(*logs, fmt.Sprintf("seed-%d.log", seed)))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		if !t.Failed() {
			require.NoError(t, os.Remove(f.Name()))
		}
	})
	return f
}
