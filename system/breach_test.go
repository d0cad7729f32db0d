package system_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// The tests of this file are schedules that once broke a promise, each some times over,
// because a race may go either way.

func holds(t *testing.T, times int, seed uint64, faults []system.Fault) {
	t.Helper()
	for range times {
		ledger, trace := run(t, seed, faults, nil)
		for _, b := range ledger.Breaches() {
			require.Fail(t, b.String(), trace.Of(b.About))
		}
	}
}

// A client leaves a frozen hub for one that cannot tell the others so in time. When the
// frozen hub goes on, it says that the client is its own: the socket at the other hub must
// not fall silent.
func TestFrozenHubComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("several worlds, one would do for the race detector")
	}
	t.Parallel()
	holds(t, 2, 70, []system.Fault{
		{At: 16742 * time.Millisecond, For: 13782 * time.Millisecond, Kind: "reset", On: []string{"hub2", "redis"}},
		{At: 31628 * time.Millisecond, For: 2549 * time.Millisecond, Kind: "slow", On: []string{"hub1", "redis"}},
		{At: 54859 * time.Millisecond, For: 5175 * time.Millisecond, Kind: "cut", On: []string{"hub3", "redis"}},
		{At: 63285 * time.Millisecond, For: 51 * time.Millisecond, Kind: "deafen", On: []string{"redis", "hub1"}},
		{At: 78413 * time.Millisecond, For: 45870 * time.Millisecond, Kind: "freeze", On: []string{"hub2"}},
		{At: 80415 * time.Millisecond, For: 8486 * time.Millisecond, Kind: "crash", On: []string{"redis"}},
		{At: 103913 * time.Millisecond, For: 50302 * time.Millisecond, Kind: "slow", On: []string{"hub3", "redis"}},
	})
}

// Two servers die under one prompt, which is quarantined: it has an end like any other.
func TestTwoServersDieUnderOnePrompt(t *testing.T) {
	if testing.Short() {
		t.Skip("two minutes of a whole fleet, which TestFairWeather has for the race detector")
	}
	t.Parallel()
	holds(t, 1, 72, []system.Fault{
		{At: 68977 * time.Millisecond, For: 3865 * time.Millisecond, Kind: "freeze", On: []string{"comfy2"}},
		{At: 90152 * time.Millisecond, For: 367 * time.Millisecond, Kind: "die", On: []string{"comfy1"}},
		{At: 103790 * time.Millisecond, For: 6918 * time.Millisecond, Kind: "die", On: []string{"comfy3"}},
		{At: 110434 * time.Millisecond, For: 39606 * time.Millisecond, Kind: "die", On: []string{"comfy1"}},
	})
}
