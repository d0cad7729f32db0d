package waits

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Figures keep their goals. `make bench` asks for all of them, and reads them from the log.
func TestFigures(t *testing.T) {
	t.Parallel()
	asked := os.Getenv("COMFYHUB_WAITS")
	o := options{seed: 1, whole: asked == "whole"}
	if seed := os.Getenv("COMFYHUB_WAITS_SEED"); seed != "" {
		o.seed = must.Get(strconv.ParseUint(seed, 10, 64))(t)
	}
	for _, f := range figures() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if f.long && asked == "" {
				t.Skip("only when asked for: COMFYHUB_WAITS=quick or whole")
			}
			got := f.measure(t, o)
			t.Log(got)
			if asked == "" {
				require.True(t, got.Kept(), got)
			}
		})
	}
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	const instances, count = 8, 2000
	list := arrivals(1, instances, count, load)
	require.Equal(t, list, arrivals(1, instances, count, load), "a seed gives one schedule")
	require.NotEqual(t, list, arrivals(2, instances, count, load))
	videos, before := 0, time.Duration(0)
	var work time.Duration
	for _, a := range list {
		require.GreaterOrEqual(t, a.at, before)
		before = a.at
		work += a.takes
		if a.takes == video {
			videos++
		}
	}
	require.Equal(t, count/videoEach, videos)
	require.InDelta(t, load, work.Seconds()/instances/before.Seconds(), 0.05)
}

func TestIdeal(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name      string
		instances int
		list      []arrival
		want      time.Duration // of all waits together
	}{
		{"enough instances", 2, []arrival{{at: 0, takes: s}, {at: 0, takes: s}}, 0},
		{"one after another", 1, []arrival{{at: 0, takes: 2 * s}, {at: s, takes: s}, {at: s, takes: s}}, s + 2*s},
		{"the first that is free", 2, []arrival{{at: 0, takes: 9 * s}, {at: 0, takes: s}, {at: 0, takes: s}, {at: 0, takes: s}}, s + 2*s},
		{"idle in between", 1, []arrival{{at: 0, takes: s}, {at: 5 * s, takes: s}}, 0},
	} {
		require.Equal(t, c.want/time.Duration(len(c.list)), ideal(c.list, c.instances), c.name)
	}
	// Theory says 12.4 s for endless arrivals; 20,000 come close.
	require.InDelta(t, 12.4, ideal(arrivals(3, 8, 20_000, load), 8).Seconds(), 4)
}

func TestBlindly(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name      string
		instances int
		list      []arrival
		switches  int
		want      time.Duration // of all waits together
	}{
		{"one model", 1, []arrival{{0, s, 1}, {0, s, 1}}, 1, s + modelLoad},
		{"two in turn", 1, []arrival{{0, s, 1}, {0, s, 2}, {0, s, 1}}, 3, 3*s + 3*modelLoad},
		{"the one that is free first", 2, []arrival{{0, 9 * s, 1}, {0, s, 2}, {0, s, 2}}, 2, s + modelLoad},
	} {
		switches, mean := blindly(c.list, c.instances)
		require.Equal(t, c.switches, switches, c.name)
		require.Equal(t, c.want/time.Duration(len(c.list)), mean, c.name)
	}
}

func TestMisses(t *testing.T) {
	t.Parallel()
	const s = time.Second
	shares, silent := misses([]played{
		{arrival: arrival{takes: 4 * s}, waited: 5 * s, promised: s}, // too short
		{arrival: arrival{takes: 4 * s}, waited: 10 * s, promised: 16 * s},
		{arrival: arrival{takes: 4 * s}, waited: 20 * s, promised: 19 * s},
		{arrival: arrival{takes: 4 * s}, waited: 20 * s, promised: -1},
	})
	require.InDeltaSlice(t, []float64{0.2, 0.25}, shares, 1e-9, "12 s instead of 10, 15 s instead of 20")
	require.Equal(t, 1, silent)
}
