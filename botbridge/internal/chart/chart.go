// Package chart draws what became of the requests of some days, for an operator on a phone.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// The size of a picture in pixels: a phone shows it without enlarging it.
const (
	Width  = 1080
	Height = 1350
)

// Words are the texts of a picture.
type Words struct {
	// Requests and Wait are the titles; Done, Failed, Other and Users are what the colours of
	// the first mean, Half and Most those of the second.
	Requests, Wait, Done, Failed, Other, Users, Half, Most string
	// Day is how Go writes the second of January.
	Day string
	// Duration writes a duration.
	Duration func(time.Duration) string
}

var (
	green  = color.RGBA{0x2e, 0x9e, 0x5b, 0xff}
	red    = color.RGBA{0xd6, 0x45, 0x45, 0xff}
	grey   = color.RGBA{0xb4, 0xb8, 0xbf, 0xff}
	blue   = color.RGBA{0x2b, 0x6c, 0xb0, 0xff}
	orange = color.RGBA{0xdd, 0x7a, 0x1f, 0xff}
	faint  = color.RGBA{0xe6, 0xe8, 0xeb, 0xff}
)

// Draw draws days, at least one, the oldest first: above how many requests ended, and of how many people,
// below how long they took. It returns a PNG.
func Draw(days []state.Day, w Words) ([]byte, error) {
	above, err := requests(days, w)
	if err != nil {
		return nil, fmt.Errorf("drawing the requests: %w", err)
	}
	below, err := waits(days, w)
	if err != nil {
		return nil, fmt.Errorf("drawing the waits: %w", err)
	}
	const dpi = 192
	canvas := vgimg.NewWith(vgimg.UseWH(Width*vg.Inch/dpi, Height*vg.Inch/dpi), vgimg.UseDPI(dpi))
	whole := draw.New(canvas)
	const edge = 14
	half := whole.Size().Y / 2
	above.Draw(draw.Crop(whole, edge, -edge, half+edge/2, -edge))
	below.Draw(draw.Crop(whole, edge, -edge, edge, -half-edge/2))
	var out bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// axes is an empty plot over days.
func axes(title string, days []state.Day, layout string) *plot.Plot {
	p := plot.New()
	sans := func(size font.Length) font.Font {
		return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	}
	p.Title.Text, p.Title.TextStyle.Font, p.Title.Padding = title, sans(13), 8
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font, p.Legend.TextStyle.Font = sans(10), sans(10), sans(10)
	p.X.Padding, p.Y.Padding = 2, 2
	p.X.Min, p.X.Max = -0.6, float64(len(days))-0.4
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = 3
	const apart = 6
	var ticks plot.ConstantTicks
	for i := len(days) - 1; i >= 0; i -= apart {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: days[i].Begin.Format(layout)})
	}
	p.X.Tick.Marker = ticks
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, faint
	p.Add(grid)
	return p
}

// requests draws the outcomes of each day as one bar, and its people as a line.
func requests(days []state.Day, w Words) (*plot.Plot, error) {
	p := axes(w.Requests, days, w.Day)
	p.Y.Tick.Marker = wholeTicks{}
	done, failed, other := make(plotter.Values, len(days)), make(plotter.Values, len(days)), make(plotter.Values, len(days))
	users := make(plotter.XYs, len(days))
	for i, d := range days {
		done[i] = float64(d.Outcomes["done"])
		failed[i] = float64(d.Outcomes["failed"] + d.Outcomes["undelivered"])
		other[i] = float64(d.Requests()) - done[i] - failed[i]
		users[i] = plotter.XY{X: float64(i), Y: float64(d.Users)}
	}
	width := font.Length(360 / float64(len(days)) * 0.7)
	var below *plotter.BarChart
	for _, one := range []struct {
		values plotter.Values
		colour color.Color
		name   string
	}{{done, green, w.Done}, {failed, red, w.Failed}, {other, grey, w.Other}} {
		bars, err := plotter.NewBarChart(one.values, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = one.colour, 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(one.name, bars)
	}
	if err := line(p, users, blue, w.Users); err != nil {
		return nil, err
	}
	p.Y.Max = max(4, p.Y.Max*1.45) // below the legend
	return p, nil
}

// waits draws how long half and nearly all of the requests of each day took, over a scale on
// which each step doubles.
func waits(days []state.Day, w Words) (*plot.Plot, error) {
	p := axes(w.Wait, days, w.Day)
	for _, one := range []struct {
		share  float64
		colour color.Color
		name   string
	}{{0.5, green, w.Half}, {0.95, orange, w.Most}} {
		var points plotter.XYs
		for i, d := range days {
			if wait, ok := d.Wait(one.share); ok {
				points = append(points, plotter.XY{X: float64(i), Y: math.Log2(1 + wait.Seconds())})
			}
		}
		if len(points) == 0 {
			continue
		}
		if err := line(p, points, one.colour, one.name); err != nil {
			return nil, err
		}
	}
	p.Y.Min, p.Y.Max = 0, max(4, p.Y.Max*1.3)
	var ticks plot.ConstantTicks
	for _, d := range []time.Duration{
		time.Second, 5 * time.Second, 20 * time.Second, time.Minute, 5 * time.Minute, 20 * time.Minute, time.Hour, 5 * time.Hour,
	} {
		if at := math.Log2(1 + d.Seconds()); at <= p.Y.Max {
			ticks = append(ticks, plot.Tick{Value: at, Label: w.Duration(d)})
		}
	}
	p.Y.Tick.Marker = ticks
	return p, nil
}

// line adds a line with a point for each day.
func line(p *plot.Plot, points plotter.XYs, colour color.Color, name string) error {
	l, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = colour, 2
	dots.Color, dots.Shape, dots.Radius = colour, draw.CircleGlyph{}, 2.5
	p.Add(l, dots)
	p.Legend.Add(name, l, dots)
	return nil
}

// wholeTicks are marks at whole numbers, as requests have no fractions.
type wholeTicks struct{}

// Ticks implements [plot.Ticker].
func (wholeTicks) Ticks(_, most float64) (ticks []plot.Tick) {
	const marks = 5
	step := math.Pow(10, math.Floor(math.Log10(max(1, most/marks))))
	for _, times := range []float64{1, 2, 5, 10} {
		if most/(step*times) <= marks {
			step *= times
			break
		}
	}
	for at := 0.0; at <= most; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%.0f", at)})
	}
	return ticks
}
