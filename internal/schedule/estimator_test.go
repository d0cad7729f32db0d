package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	rtx = "NVIDIA GeForce RTX 4090"
	old = "NVIDIA T4"
)

func pair(structure, gpu string) schedule.Pair {
	return schedule.Pair{Structure: structure, Kind: "kind", GPU: gpu}
}

func sized(structure string, work float64) schedule.Structure {
	return schedule.Structure{Key: structure, Kind: "kind", Work: work}
}

// seconds is the run time of some work: 2 s plus a second per 1,000.
func seconds(work float64) time.Duration {
	return 2*time.Second + time.Duration(work*float64(time.Millisecond))
}

// Sizes that were never run are predicted within 20 % although a quarter of the runs are cached or
// load something.
func TestLearnsSizesDespiteOutliers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var e schedule.Estimator
		for n := range 12 {
			work := float64(1000 * (1 + random.IntN(8)))
			ran := time.Duration(float64(seconds(work)) * (0.97 + 0.06*random.Float64()))
			switch n {
			case 2, 7:
				ran = 100 * time.Millisecond
			case 5:
				ran = time.Minute
			}
			e.Add(pair("s", rtx), schedule.Sample{Work: work, Ran: ran})
		}
		for _, work := range []float64{500, 4500, 12000} {
			got := e.Estimate(sized("s", work), rtx)
			require.Equal(t, schedule.Learned, got.Source)
			require.InEpsilon(t, seconds(work).Seconds(), got.Ran.Seconds(), 0.2, "seed %d work %v", seed, work)
		}
	}
}

// The time to load models is learned separately from the run.
func TestLearnsLoadApart(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	e.Add(pair("s", rtx), schedule.Sample{Work: 10, Ran: 65 * time.Second, Cold: true})
	require.InDelta(t, 65, e.Estimate(sized("s", 10), rtx).Ran.Seconds(), 0.1, "all that is known")
	for range 5 {
		e.Add(pair("s", rtx), schedule.Sample{Work: 10, Ran: 5 * time.Second})
	}
	got := e.Estimate(sized("s", 10), rtx)
	require.InDelta(t, 5, got.Ran.Seconds(), 0.1)
	require.InDelta(t, 60, got.Load.Seconds(), 0.1)
}

// A GPU that becomes twice as slow is believed after three runs; two odd runs are not.
func TestLearnsDrift(t *testing.T) {
	t.Parallel()
	for _, sizes := range []int{1, 4} {
		var e schedule.Estimator
		add := func(n int, by float64) {
			work := float64(1000 * (1 + n%sizes))
			e.Add(pair("s", rtx), schedule.Sample{Work: work, Ran: time.Duration(by * float64(seconds(work)))})
		}
		for n := range 12 {
			add(n, 1)
		}
		add(0, 2)
		add(1, 2)
		require.InEpsilon(t, seconds(1000).Seconds(), e.Estimate(sized("s", 1000), rtx).Ran.Seconds(), 0.2)
		for n := range 12 {
			add(n, 2)
			require.InEpsilon(t, 2*seconds(1000).Seconds(), e.Estimate(sized("s", 1000), rtx).Ran.Seconds(), 0.35, "run %d of %d sizes", n, sizes)
		}
	}
}

func TestColdStart(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	require.Equal(t, schedule.Guess, e.Estimate(sized("s", 1), rtx).Source)
	for range 3 {
		e.Add(pair("s", rtx), schedule.Sample{Work: 1, Ran: 4 * time.Second})
	}
	require.Equal(t, schedule.Alike, e.Estimate(sized("other", 1), rtx).Source)
	require.Equal(t, schedule.Typical, e.Estimate(schedule.Structure{Key: "other", Kind: "x", Work: 1}, rtx).Source)
	require.InDelta(t, 4, e.Estimate(sized("s", 1), old).Ran.Seconds(), 0.01)
	// A structure that both have run tells how much slower the other one is.
	e.Add(pair("both", rtx), schedule.Sample{Work: 1, Ran: time.Second})
	e.Add(pair("both", old), schedule.Sample{Work: 1, Ran: 5 * time.Second})
	got := e.Estimate(sized("s", 1), old)
	require.Equal(t, schedule.OtherGPU, got.Source)
	require.InDelta(t, 20, got.Ran.Seconds(), 0.1)
}

// Many structures take a bounded amount of memory; those seen last stay.
func TestForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	for n := range schedule.MaxCells + 10 {
		e.Add(pair(fmt.Sprint(n), rtx), schedule.Sample{Work: 1, Ran: time.Second})
	}
	require.NotEqual(t, schedule.Learned, e.Estimate(sized("9", 1), rtx).Source)
	require.Equal(t, schedule.Learned, e.Estimate(sized("10", 1), rtx).Source)
}

func TestSamplesSurviveStorage(t *testing.T) {
	t.Parallel()
	a := schedule.Sample{Work: 1.5e7, Ran: 1234 * time.Millisecond, Cold: true}
	b := schedule.Sample{Work: 1, Ran: time.Millisecond}
	require.Equal(t, []schedule.Sample{a, b}, schedule.DecodeSamples(a.Encode()+" x 1w 9v9 "+b.Encode()))
	p := pair("s", "a: b")
	back, ok := schedule.ParsePair(p.Field())
	require.True(t, ok)
	require.Equal(t, p, back)
}

func FuzzDecodeSamples(f *testing.F) {
	f.Add("1w5 3c9")
	f.Add("NaNw1 1e400w1 -1c1 1w-9223372036854775808 1w99999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		var e schedule.Estimator
		samples := schedule.DecodeSamples(text)
		e.Set(pair("s", rtx), samples)
		got := e.Estimate(sized("s", 1e15), rtx)
		require.Greater(t, got.Ran, time.Duration(0))
		require.GreaterOrEqual(t, got.Load, time.Duration(0))
		for _, s := range samples {
			require.Len(t, schedule.DecodeSamples(s.Encode()), 1)
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	s := time.Second
	for _, test := range []struct {
		free  []time.Duration
		ahead int
		want  time.Duration
	}{
		{[]time.Duration{0}, 0, 0},
		{[]time.Duration{7 * s}, 0, 7 * s},
		{[]time.Duration{7 * s, 3 * s}, 1, 7 * s},
		{[]time.Duration{7 * s, 3 * s, -s}, 2, 7 * s},
		{[]time.Duration{0, 0}, 10, 50 * s},
		{[]time.Duration{0, 0}, 10_000, 50_000 * s},
	} {
		got, ok := schedule.Wait(test.free, test.ahead, 10*s)
		require.True(t, ok)
		require.Equal(t, test.want, got)
	}
	_, ok := schedule.Wait(nil, 3, s)
	require.False(t, ok)
	far, _ := schedule.Wait([]time.Duration{0}, 1<<40, time.Hour)
	require.Equal(t, 7*24*time.Hour, far)
}

func TestGPUType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"cuda:1 NVIDIA GeForce RTX 4090 : cudaMallocAsync": rtx, "cuda:0 NVIDIA T4 : native": old, rtx: rtx, "cpu": "cpu", "": "",
	} {
		require.Equal(t, want, schedule.GPUType(name), name)
	}
}

// The longest run is scaled up to the graph's work, but never down.
func TestLongest(t *testing.T) {
	t.Parallel()
	var e schedule.Estimator
	longest, runs := e.Longest(sized("s", 1), rtx, false)
	require.Zero(t, longest)
	require.Zero(t, runs)
	e.Add(pair("s", rtx), schedule.Sample{Work: 1000, Ran: 3 * time.Second})
	e.Add(pair("s", rtx), schedule.Sample{Work: 2000, Ran: 5 * time.Second})
	e.Add(pair("s", rtx), schedule.Sample{Work: 1000, Ran: 8 * time.Second, Cold: true})
	e.Add(pair("s", old), schedule.Sample{Work: 1000, Ran: time.Hour})
	for _, c := range []struct {
		work float64
		cold bool
		want time.Duration
		runs int
	}{
		{work: 1000, want: 8 * time.Second, runs: 3},
		{work: 100, want: 8 * time.Second, runs: 3},
		{work: 4000, want: 32 * time.Second, runs: 3},
		{work: 2000, cold: true, want: 16 * time.Second, runs: 1},
	} {
		longest, runs = e.Longest(sized("s", c.work), rtx, c.cold)
		require.Equal(t, c.want, longest)
		require.Equal(t, c.runs, runs)
	}
}
