package dispatch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/run"
)

// daySettings are the defaults of the hub.
var daySettings = Settings{Overtaking: 10 * time.Second, ShortFirst: 2 * time.Minute, Settings: run.Settings{UnrunnableTimeout: time.Hour}}

// Traffic of several tenants with bursts, priorities and two kinds of servers: every pass obeys the
// laws of daySim.check, every job runs, and the mean time until a model is loaded and computing is
// at most 60 % of that of an ideal queue in order of arrival. The same traffic gives the same
// order.
func TestDay(t *testing.T) {
	muchComputing(t)
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
	// Jobs that wait for loaded models wait longer, but need not wait for the models to load.
	loading := func(loads int) time.Duration { return s.loading * time.Duration(loads) / time.Duration(len(list)) }
	require.Less(t, 5*(hub.waits.mean("all")+loading(hub.switches)), 3*(fifo.mean("all")+loading(switches)))
	require.Less(t, 2*hub.switches, switches)
	t.Logf("%d loads of models saved, says the hub", hub.saved)
	require.Greater(t, 2*hub.saved, switches-hub.switches)
	require.LessOrEqual(t, hub.saved+hub.switches, len(list))
	require.Less(t, hub.waits.longest("all", 1), 10*time.Minute)
	s.lasts = 2 * time.Minute
	require.Equal(t, s.simulate(t, false, daySettings).order, s.simulate(t, false, daySettings).order, "the same seed, another order")
}

// While all tenants have jobs waiting, they get the servers' time by their weights, within a tenth,
// even when short jobs and loaded models change the order.
func TestDayIsFair(t *testing.T) {
	muchComputing(t)
	s := daySpec{
		seed: 5, servers: 8, lasts: 10 * time.Minute, load: 2, videos: 0.05, models: 2, loading: 2 * time.Second,
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

// A day of a fleet of 300 servers, shortened to twenty minutes or to what COMFYHUB_DAY says (24h for all
// of it). Half of the prompts are videos of 2 to 20 minutes, which a third of the servers cannot
// make; the rest are pictures of 4 to 30 seconds. The servers that make videos are busy for 56 % of
// the time, for 84 % at the peak and 28 % at night.
func TestDayOfThreeHundred(t *testing.T) {
	muchComputing(t)
	s := daySpec{
		seed: 3, servers: 300, lasts: 20 * time.Minute, load: 0.45, videos: 0.5, models: 8, loading: 15 * time.Second, noise: 0.1,
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

// muchComputing runs beside other tests. It is one thing after the other: nothing for the race detector.
func muchComputing(t *testing.T) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing")
	}
}

func seconds(list ...int) (times []time.Duration) {
	for _, n := range list {
		times = append(times, time.Duration(n)*time.Second)
	}
	return times
}

// TestDayPlots draws the mean wait over the load, with three seeds of an hour each, into the folder
// that COMFYHUB_PLOTS names: wait-8.svg and wait-30.svg.
func TestDayPlots(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("COMFYHUB_PLOTS")
	if folder == "" {
		t.Skip("COMFYHUB_PLOTS names no folder")
	}
	for _, servers := range []int{8, 30} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			c := chart{title: fmt.Sprintf("Mean wait behind %d servers: nine pictures of 4 s to one video of 120 s", servers)}
			c.lines = []chartLine{{name: "round robin", colour: "#c0392b"}, {name: "ideal first come", colour: "#7f8c8d"}, {name: "hub", colour: "#2471a3"}}
			for _, load := range []float64{0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95} {
				const seeds = 3
				var sums [3]time.Duration
				for seed := range uint64(seeds) {
					s := daySpec{seed: seed + 1, servers: servers, lasts: time.Hour, load: load, videos: 0.1, models: 1, tenants: 1, callers: 1000}
					list := s.arrivals()
					ideal, _ := s.firstCome(list)
					ours := s.simulateThese(t, list, false, daySettings)
					sums[0] += s.roundRobin(list).mean("all")
					sums[1] += ideal.mean("all")
					sums[2] += ours.waits.mean("all")
				}
				for n, sum := range sums {
					c.lines[n].points = append(c.lines[n].points, [2]float64{100 * load, sum.Seconds() / seeds})
				}
			}
			require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("wait-%d.svg", servers)), []byte(c.svg()), 0o644))
		})
	}
}

// chart is a plot of seconds, on a logarithmic scale, over a load in per cent.
type chart struct {
	title string
	lines []chartLine
}

type chartLine struct {
	name, colour string
	points       [][2]float64
}

const (
	chartWidth, chartHeight    = 760, 420
	chartLeft, chartTop        = 70, 50
	chartRight, chartBottom    = 130, 50
	chartLeast, chartMost      = 0.01, 1000 // seconds
	chartLeastLoad, chartLoads = 50, 50     // per cent: the first one, and how many
)

func (chart) x(load float64) float64 {
	return chartLeft + (load-chartLeastLoad)/chartLoads*(chartWidth-chartLeft-chartRight)
}

func (chart) y(seconds float64) float64 {
	part := math.Log(min(max(seconds, chartLeast), chartMost)/chartLeast) / math.Log(float64(chartMost)/chartLeast)
	return chartHeight - chartBottom - part*(chartHeight-chartTop-chartBottom)
}

func (c chart) svg() string {
	var b strings.Builder
	text := func(x, y float64, anchor, colour, words string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, colour, words)
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", chartWidth, chartHeight)
	text(chartLeft, 24, "start", "#222222", c.title)
	for seconds := chartLeast; seconds <= chartMost; seconds *= 10 {
		y := c.y(seconds)
		fmt.Fprintf(&b, "<path d=\"M%d %.1fH%d\" stroke=\"#dddddd\"/>\n", chartLeft, y, chartWidth-chartRight)
		text(chartLeft-8, y+4, "end", "#555555", fmt.Sprintf("%g s", seconds))
	}
	for load := chartLeastLoad; load <= chartLeastLoad+chartLoads; load += 10 {
		text(c.x(float64(load)), chartHeight-chartBottom+20, "middle", "#555555", fmt.Sprintf("%d %%", load))
	}
	text(c.x(chartLeastLoad+chartLoads/2), chartHeight-10, "middle", "#555555", "load of the fleet")
	for _, line := range c.lines {
		var path []string
		for _, p := range line.points {
			path = append(path, fmt.Sprintf("%.1f %.1f", c.x(p[0]), c.y(p[1])))
		}
		fmt.Fprintf(&b, "<path d=\"M%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", strings.Join(path, "L"), line.colour)
		if len(line.points) > 0 {
			last := line.points[len(line.points)-1]
			text(c.x(last[0])+8, c.y(last[1])+4, "start", line.colour, line.name)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
