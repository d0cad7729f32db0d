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

	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/system"
)

var (
	seeds  = flag.Int("seeds", 0, "how many schedules of faults are run")
	first  = flag.Uint64("first", 1, "the first of them")
	clocks = flag.Bool("clocks", false, "let Redis's clock jump")
	damage = flag.Bool("damage", false, "let disks lose what they have synced in each seed, not only in each seventh")
	leave  = flag.Bool("leave", false, "let a hub end around most failovers")
	stay   = flag.Bool("stay", false, "let one fault last until all prompts have ended")
	wide   = flag.Bool("wide", false, "run each seed with more servers than clients, not only each fifth")
	cloud  = flag.Bool("cloud", false, "let hubs give prompts to a serverless endpoint in each seed, with more clients than servers")
	scale  = flag.Bool("scale", false, "let machines come and go by need in each seed, with clients that rest now and then")
	storm  = flag.Bool("storm", false, "let hubs and Redis fail all the time, in a larger world")
	logs   = flag.String("logs", "", "a folder for the hubs' logs of seeds that break a promise; they are large")
)

func TestMain(m *testing.M) {
	flag.Parse()
	size.Clocks, size.Leave = *clocks, *leave
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

// fleet is a world and its clients.
type fleet struct {
	size system.Config
	load system.Load
}

// fleetOf is what a seed runs. One in ten has more servers than clients, so that batches are made in
// parts, and one in seven has disks that lie.
func fleetOf(seed uint64) fleet {
	f := fleet{size, load}
	switch {
	case *storm:
	case *cloud:
		f.size.Comfys, f.size.Agents, f.size.Cloud = 2, 1, []string{"runpod", "http"}[seed%2]
		f.load.Sockets, f.load.Pollers = 8, 2
	case *scale:
		f.size = system.Config{Hubs: 3, Comfys: 1, Clients: 8, Clocks: *clocks, Seconds: []float64{2, 20, 60}, Rest: 2 * time.Minute, Rental: &system.RentalConfig{Seed: seed, Min: int(seed % 2)}} // #nosec G115 -- below 2
		if seed%3 == 0 {
			f.size.Rental.Min, f.size.Rental.Budget = 0, 12 // the budget is stronger than min
		}
		f.load = system.Load{Sockets: f.size.Clients, Pollers: 2, For: 6 * time.Minute}
	case *wide || !*damage && seed%10 == 2:
		f.size = system.Config{Hubs: 3, Comfys: 8 + int(seed/10%5), Agents: 4, Clients: 3, Batch: 12, Clocks: *clocks} // #nosec G115 -- below 5
		f.load.Sockets, f.load.Pollers = f.size.Clients, int(seed/10%2)                                                // #nosec G115 -- below 2
	case *damage || seed%7 == 0:
		f.size.Damage = true
	case *stay:
		f.size.Stay = true
	}
	return f
}

// run runs a seed's clients in the usual fleet against a schedule of faults.
func run(t *testing.T, seed uint64, faults []system.Fault, log *os.File) (ledger *system.Ledger, trace *system.Trace) {
	return fleet{size, load}.run(t, seed, faults, log)
}

func (f fleet) run(t *testing.T, seed uint64, faults []system.Fault, log *os.File) (ledger *system.Ledger, trace *system.Trace) {
	synctest.Test(t, func(t *testing.T) {
		c := f.size
		if log != nil {
			c.Log = log
		}
		ledger, trace = system.Run(t, seed, c, f.load, faults)
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
			f := fleetOf(seed)
			faults := system.Faults(seed, f.size, f.load.For)
			began := time.Now()
			ledger, trace := f.run(t, seed, faults, logOf(t, seed))
			t.Logf("%d prompts, %d in parts, %d servers, %d faults, decisions %s, %v", ledger.Accepted(), ledger.InParts(), f.size.Comfys, len(faults), trace.Hash(), time.Since(began).Round(time.Millisecond))
			if ledger.Accepted() == 0 {
				t.Error("no prompt was accepted")
			}
			if breaches := ledger.Breaches(); len(breaches) > 0 {
				t.Log(breaches)
				report(t, seed, breaches, trace, f.shorten(t, seed, faults))
			}
		})
	}
}

// In a fleet with more servers than clients, batches and outputs are made in parts: otherwise the seeds
// with such a fleet would show nothing about them.
func TestWideFleetMakesParts(t *testing.T) {
	if fleetOf(2).size.Batch == 0 {
		t.Skip("the flags ask for other fleets")
	}
	if testing.Short() {
		t.Skip("two minutes of a large fleet, whose parts other tests have for the race detector")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, log := fleetOf(2), &logtest.Log{}
		f.size.Log = log
		ledger, _ := system.Run(t, 2, f.size, f.load, nil)
		require.Empty(t, ledger.Breaches())
		require.Positive(t, ledger.InParts(), "no batch was split")
		require.Contains(t, log.String(), "outputs_apart=true")
	})
}

// shorten drops the faults without which a promise is broken all the same.
func (f fleet) shorten(t *testing.T, seed uint64, faults []system.Fault) []system.Fault {
	for n := range slices.Backward(faults) {
		fewer := slices.Concat(faults[:n], faults[n+1:])
		if ledger, _ := f.run(t, seed, fewer, nil); len(ledger.Breaches()) > 0 {
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
