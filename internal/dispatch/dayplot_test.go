package dispatch

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDayPlots draws the mean wait over the load, with three seeds of an hour each, into the folder that COMFYHUB_PLOTS names:
// wait-8.svg and wait-30.svg.
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

func TestChart(t *testing.T) {
	t.Parallel()
	c := chart{title: "waits", lines: []chartLine{{name: "hub", colour: "#000000", points: [][2]float64{{50, 0}, {95, 1000}}}, {name: "empty"}}}
	decoder, elements := xml.NewDecoder(strings.NewReader(c.svg())), 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
	require.Greater(t, elements, 10)
	require.InDelta(t, chartHeight-chartBottom, c.y(0), 1e-9)
	require.InDelta(t, chartTop, c.y(1e9), 1e-9)
	require.InDelta(t, (c.y(0.1)+c.y(10))/2, c.y(1), 1e-9)
}
