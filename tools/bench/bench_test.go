package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

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

func TestLastMetric(t *testing.T) {
	t.Parallel()
	out := []byte("BenchmarkX/a-2   500   104 ns/op   1.000 times-small\nBenchmarkX/b-2   500   164 ns/op   1.577 times-small\nPASS\n")
	require.InDelta(t, 1.577, must.Get(lastMetric(out, "times-small"))(t), 1e-9)
	_, err := lastMetric(out, "cycles/s")
	require.ErrorContains(t, err, "no cycles/s")
	_, err = lastMetric([]byte("x cycles/s"), "cycles/s")
	require.Error(t, err)
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

func TestStrangers(t *testing.T) {
	t.Parallel()
	const stat = "cpu  100 10 50 800 20 5 5 10 40 0\ncpu0 1 2 3 4\n"
	const s = time.Second
	require.Equal(t, work{busy: 1700 * time.Millisecond, all: 10 * s}, work{}.add(stat))
	before := work{busy: 10 * s, all: 100 * s, own: 5 * s}
	require.InDelta(t, 0.3, before.strangers(work{busy: 20 * s, all: 120 * s, own: 9 * s}), 1e-9)
	require.Zero(t, before.strangers(work{busy: 12 * s, all: 120 * s, own: 9 * s}), "clocks differ a little")
	require.Zero(t, work{}.strangers(work{}), "a system that hides it")
}

func TestRepeat(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		good  int // the attempt at which nobody else uses the machine
		exact bool
		want  string
	}{
		"at once":     {0, false, "BENCH name=x value=1 "},
		"the second":  {1, false, "BENCH name=x value=2 "},
		"never":       {9, false, "VOID name=x: other programs used 50 % of the machine"},
		"never minds": {9, true, "BENCH name=x value=1 "},
	} {
		var out bytes.Buffer
		var now work
		attempt := 0
		b := benchmark{name: "x", exact: c.exact, run: func(*rig) ([]figure.Figure, error) {
			if now.all += 10 * s; attempt < c.good {
				now.busy += 5 * s
			}
			attempt++
			return []figure.Figure{{Name: "x", Value: float64(attempt)}}, nil
		}}
		require.NoError(t, options{machine: func() work { return now }}.repeat(t.Context(), b, programs.Set{}, t.TempDir(), &out), name)
		require.Contains(t, out.String(), c.want, name)
	}
	b := benchmark{name: "x", run: func(*rig) ([]figure.Figure, error) { return nil, errors.New("no such file") }}
	require.ErrorContains(t, options{machine: readWork}.repeat(t.Context(), b, programs.Set{}, t.TempDir(), &bytes.Buffer{}), "no such file")
}
