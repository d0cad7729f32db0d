package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

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

func TestChoose(t *testing.T) {
	t.Parallel()
	chosen := must.Get(choose("gap, latency"))(t)
	require.Equal(t, "gap", chosen[0].name)
	require.Equal(t, "latency", chosen[1].name)
	_, err := choose("speed")
	require.ErrorContains(t, err, `"speed"`)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), options{names: "list"}, &out))
	require.Equal(t, len(benchmarks()), strings.Count(out.String(), "\n"))
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

func TestLags(t *testing.T) {
	t.Parallel()
	const s = time.Second
	require.Zero(t, lagsOf(nil, 1))
	require.Equal(t, lags{Idle: 2 * s, Freed: 3 * s}, lagsOf([]recorded{
		{At: 0, Waited: s, Took: 10 * s},
		{At: 5 * s, Waited: 9 * s, Took: 10 * s}, // the only instance is busy until 11 s
		{At: 30 * s, Waited: 3 * s, Took: s},
	}, 1))
	require.Equal(t, lags{Idle: s}, lagsOf([]recorded{{Waited: s, Took: 9 * s}, {At: 1, Waited: s, Took: 9 * s}}, 2), "each has an instance")
	require.Equal(t, lags{s, 2 * s}, lags{2 * s, 4 * s}.times(50))
}

func TestLastMetric(t *testing.T) {
	t.Parallel()
	out := []byte("BenchmarkX/a-2   500   104 ns/op   1.000 times-small\nBenchmarkX/b-2   500   164 ns/op   1.577 times-small\nPASS\n")
	require.InDelta(t, 1.577, must.Get(lastMetric(out, "times-small"))(t), 1e-9)
	_, err := lastMetric(out, "cycles/s")
	require.ErrorContains(t, err, "no cycles/s")
	_, err = lastMetric([]byte("x cycles/s"), "cycles/s")
	require.Error(t, err)
}

func TestMisses(t *testing.T) {
	t.Parallel()
	const s = time.Second
	all := []played{
		{arrival: arrival{takes: 4 * s}, waited: 5 * s}, // too short
		{arrival: arrival{takes: 4 * s}, waited: 10 * s},
		{arrival: arrival{takes: 4 * s}, waited: 20 * s},
		{arrival: arrival{takes: 4 * s}, waited: 20 * s},
	}
	shares, silent := misses(all, []time.Duration{s, 800 * time.Millisecond, 950 * time.Millisecond, -1}, fastest)
	require.InDeltaSlice(t, []float64{0.2, 0.25}, shares, 1e-9, "12 s instead of 10, 15 s instead of 20")
	require.Equal(t, 1, silent)
}

func TestGapsBetween(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	zero := time.UnixMilli(0)
	at := func(from, to int64) stretch { return stretch{time.UnixMilli(from), time.UnixMilli(to)} }
	runs := []stretch{at(25, 30), at(0, 10), at(12, 20), at(90, 99)}
	far := zero.Add(time.Hour)
	require.Equal(t, []time.Duration{2 * ms, 5 * ms, 60 * ms}, gapsBetween(runs, zero, far))
	require.Equal(t, []time.Duration{5 * ms, 60 * ms}, gapsBetween(runs, zero.Add(10*ms), far), "nothing waited before")
	require.Equal(t, []time.Duration{2 * ms, 5 * ms}, gapsBetween(runs, zero, zero.Add(90*ms)), "nothing waited after")
	require.Empty(t, gapsBetween(nil, zero, far))
}

func TestStrain(t *testing.T) {
	t.Parallel()
	const s = time.Second
	list := []arrival{{takes: 4 * s}, {takes: 4 * s}}
	for name, c := range map[string]struct {
		strain strain
		void   string
	}{
		"all is well":         {strain{ran: 8 * s, due: 8 * s, late: time.Millisecond, used: 0.5}, ""},
		"slow servers":        {strain{ran: 9 * s, due: 8 * s}, "12.5 % longer"},
		"no time left":        {strain{ran: 8 * s, due: 8 * s, used: 0.95}, "busy for 95 %"},
		"posts come late":     {strain{ran: 8 * s, due: 8 * s, late: s}, "1000.0 ms late"},
		"a system that hides": {strain{ran: 8 * s, due: 8 * s, used: -1}, ""},
	} {
		err := c.strain.void(list)
		if c.void == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorAs(t, err, &void{}, name)
		require.ErrorContains(t, err, c.void, name)
	}
	withModels := strain{ran: 9 * s, due: 8 * s}
	require.NoError(t, withModels.void([]arrival{{takes: 4 * s, model: 1}, {takes: 4 * s}}), "how long they load is not known")
	require.InDelta(t, 0.25, processors{idle: 10, all: 20}.share(processors{idle: 40, all: 60}), 1e-9)
	require.Negative(t, processors{}.share(processors{}))
}

func TestRepeat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		good int // the attempt that is worth something
		want string
	}{
		"at once":    {0, "BENCH name=x value=20"},
		"the second": {1, "BENCH name=x value=10"},
		"never":      {9, "VOID name=x: too busy"},
	} {
		var out bytes.Buffer
		attempt := 0
		b := benchmark{name: "x", run: func(r *rig) ([]figure, error) {
			defer func() { attempt++ }()
			if attempt < c.good {
				return nil, void{"too busy"}
			}
			return []figure{{name: "x", value: 1 / r.scale}}, nil
		}}
		require.NoError(t, options{}.repeat(t.Context(), b, programs.Set{}, t.TempDir(), &out), name)
		require.Contains(t, out.String(), c.want, name)
	}
	b := benchmark{name: "x", run: func(*rig) ([]figure, error) { return nil, errors.New("no such file") }}
	require.ErrorContains(t, options{}.repeat(t.Context(), b, programs.Set{}, t.TempDir(), &bytes.Buffer{}), "no such file")
}
