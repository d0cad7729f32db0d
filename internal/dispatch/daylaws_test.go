package dispatch

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// daySettings are the defaults of the hub.
var daySettings = Settings{Overtaking: 10 * time.Second, ShortFirst: 2 * time.Minute, UnrunnableTimeout: time.Hour}

// Traffic of several tenants with bursts, priorities and two kinds of servers: every pass
// holds the laws of daySim.check, every job runs, and the mean time until a model is loaded
// and computes is at most 60 % of that in an ideal queue in order of arrival. The same traffic gives
// the same order.
func TestDay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	s := daySpec{
		seed: 3, servers: 30, lasts: 15 * time.Minute, load: 0.6, videos: 0.1, models: 6, loading: 5 * time.Second,
		tenants: 4, callers: 5, bursts: 0.02, uneven: true, priorities: true,
	}
	list := s.arrivals()
	hub := s.simulate(t, false, daySettings)
	fifo, switches := s.firstCome(list)
	t.Logf("hub, %d loads of models\n%s\nideal queue in order of arrival, %d loads of models\n%s\nround robin\n%s",
		hub.switches, hub.waits, switches, fifo, s.roundRobin(list))
	require.Len(t, hub.waits["all"], len(list))
	// Who waits for loaded models waits longer, and need not wait for them to be loaded.
	loading := func(loads int) time.Duration { return s.loading * time.Duration(loads) / time.Duration(len(list)) }
	require.Less(t, 5*(hub.waits.mean("all")+loading(hub.switches)), 3*(fifo.mean("all")+loading(switches)))
	require.Less(t, 2*hub.switches, switches)
	require.Less(t, hub.waits.longest("all", 1), 10*time.Minute)
	require.Equal(t, hub.order, s.simulate(t, false, daySettings).order, "the same seed, another order")
}

// The mix of the benchmark hol8 with nothing in the way but the order of the jobs.
func TestDayOfEight(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	s := daySpec{seed: 3, servers: 8, lasts: 20 * time.Minute, load: 0.8, videos: 0.1, models: 1, tenants: 1, callers: 50}
	list := s.arrivals()
	hub := s.simulate(t, false, daySettings)
	fifo, _ := s.firstCome(list)
	robin := s.roundRobin(list)
	t.Logf("hub\n%s\nideal queue in order of arrival\n%s\nround robin\n%s", hub.waits, fifo, robin)
	require.Less(t, hub.waits.mean("all"), fifo.mean("all"))
	require.Less(t, 5*hub.waits.mean("all"), robin.mean("all"))
}

// While all tenants have jobs waiting they get the servers' time by their weights, within
// a tenth, also where short jobs and loaded models change the order.
func TestDayIsFair(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	s := daySpec{
		seed: 5, servers: 8, lasts: 15 * time.Minute, load: 2, videos: 0.05, models: 2, loading: 2 * time.Second,
		tenants: 3, callers: 5, weights: map[string]float64{"t0": 2, "t2": 0.5},
	}
	hub := s.simulate(t, true, daySettings)
	var all time.Duration
	for _, used := range hub.used {
		all += used
	}
	for tenant, weight := range map[string]float64{"t0": 2, "t1": 1, "t2": 0.5} {
		got := hub.used[tenant].Seconds() / all.Seconds() * 3.5
		t.Logf("%s has the weight %.1f and got %.2f", tenant, weight, got)
		require.InEpsilon(t, weight, got, 0.1, tenant)
	}
}

// A day of a fleet of 300 servers, shortened to an hour or to what COMFYHUB_DAY says (24h for
// all of it). Half of the prompts are videos of 2 to 20 minutes, which a third of the servers
// cannot make, the others pictures of 4 to 30 seconds. The servers that make videos are busy for
// 56 % of the time, for 84 % at the peak and 28 % at night.
func TestDayOfThreeHundred(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	s := daySpec{
		seed: 3, servers: 300, lasts: time.Hour, load: 0.45, videos: 0.5, models: 8, loading: 15 * time.Second, noise: 0.1,
		pictureTakes: seconds(4, 8, 15, 30), videoTakes: seconds(120, 300, 600, 1200),
		tenants: 20, callers: 5, bursts: 0.01, uneven: true, priorities: true,
	}
	if lasts := os.Getenv("COMFYHUB_DAY"); lasts != "" {
		s.lasts = must(time.ParseDuration(lasts))
	}
	list := s.arrivals()
	began := time.Now()
	hub := s.simulate(t, false, daySettings)
	t.Logf("%v of %d servers, %d prompts, took %.1f s", s.lasts, s.servers, len(list), time.Since(began).Seconds())
	fifo, switches := s.firstCome(list)
	t.Logf("hub, %d loads of models\n%s\nideal queue in order of arrival, %d loads of models\n%s\nround robin\n%s",
		hub.switches, hub.waits, switches, fifo, s.roundRobin(list))
	require.Len(t, hub.waits["all"], len(list))
	require.Less(t, 2*hub.switches, switches)
}

func seconds(list ...int) (times []time.Duration) {
	for _, n := range list {
		times = append(times, time.Duration(n)*time.Second)
	}
	return times
}
