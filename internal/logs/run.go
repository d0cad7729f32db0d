package logs

import (
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// zoneStep is what the zones of the world differ by, and farthest how far they are from UTC.
	zoneStep, farthest = 15 * time.Minute, 14 * time.Hour
	// near is how long after it begins or ends a prompt ComfyUI may say so.
	near = 3 * time.Second
)

// OfRun returns what an instance wrote during a run, the oldest first; none if its log does not go back
// that far. begin and end are by the instance's own clock; end is zero while the run goes on.
//
// A log has the local time of its machine, without the zone. The lines that ComfyUI writes when it gets
// and when it ends a prompt tell which zone that is.
func OfRun(entries pyjson.Array, begin, end time.Time) []Line {
	lines := wholeLines("", entries)
	zone, ok := zoneOf(lines, begin, end)
	if !ok {
		return nil
	}
	var out []Line
	for _, l := range lines {
		at, err := written(l)
		if err == nil && !at.Before(begin.Add(zone-near)) && (end.IsZero() || !at.After(end.Add(zone+near))) {
			out = append(out, l)
		}
	}
	return out
}

// zoneOf returns how much later than UTC the clock is that a log goes by.
func zoneOf(lines []Line, begin, end time.Time) (zone time.Duration, ok bool) {
	votes := map[time.Duration]int{}
	for _, l := range lines {
		at, err := written(l)
		if err != nil {
			continue
		}
		for _, moment := range []struct {
			says string
			when time.Time
		}{{"got prompt", begin}, {"Prompt executed in", end}} {
			apart := at.Sub(moment.when)
			if zone := apart.Round(zoneStep); !moment.when.IsZero() && strings.Contains(l.Text, moment.says) && (apart-zone).Abs() <= near && zone.Abs() <= farthest {
				votes[zone]++
			}
		}
	}
	_, here := time.Now().Zone()
	hub := time.Duration(here) * time.Second
	for candidate, n := range votes {
		if !ok || n > votes[zone] || n == votes[zone] && (candidate-hub).Abs() < (zone-hub).Abs() {
			zone, ok = candidate, true
		}
	}
	return zone, ok
}

func written(l Line) (time.Time, error) { return time.Parse("2006-01-02T15:04:05.999999", l.Time) }
