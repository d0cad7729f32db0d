package schedule

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sample is one run that was measured.
type Sample struct {
	Work float64
	// Ran is the time from execution_start to the end.
	Ran time.Duration
	// Cold says that the instance ran other models before, so that it had to load these.
	Cold bool
}

const (
	// keptSamples is how many of the last runs are kept per structure and GPU type.
	keptSamples = 12
	// recent is how many runs in a row must show that the pace has changed.
	recent = 3
	// maxRan bounds a measured time.
	maxRan = 7 * 24 * time.Hour
)

// fit is what the samples of a cell amount to: base + slope x work milliseconds, plus load for a
// cold run.
type fit struct {
	base, slope, load float64
	// spread is the median relative error of the samples.
	spread float64
}

func (f fit) ran(work float64) float64 { return max(f.base+f.slope*work, 1) }

// fitOf learns from samples, the oldest first. Medians cope with up to a third of the runs being
// odd: mostly cached, or delayed by something else.
func fitOf(samples []Sample) fit {
	var warm, cold []Sample
	for _, s := range samples {
		if s.Cold {
			cold = append(cold, s)
		} else {
			warm = append(warm, s)
		}
	}
	if len(warm) == 0 {
		warm, cold = cold, nil // the load cannot be told apart from the rest yet
	}
	f := line(usual(warm, line(warm)))
	if n := len(warm); n > recent {
		f = f.paced(warm[n-recent:])
	}
	var errs []float64
	for _, s := range warm {
		errs = append(errs, math.Abs(milliseconds(s)/f.ran(s.Work)-1))
	}
	f.spread = max(median(errs), 0.05)
	if len(warm) < recent {
		f.spread = max(f.spread, 0.5)
	}
	var loads []float64
	for _, s := range cold {
		loads = append(loads, max(milliseconds(s)-f.ran(s.Work), 0))
	}
	f.load = median(loads)
	return f
}

// line is a Theil-Sen line through the samples that neither falls nor starts below 0.
func line(samples []Sample) fit {
	var slopes, works, times, ratios []float64
	for i, a := range samples {
		works, times = append(works, a.Work), append(times, milliseconds(a))
		ratios = append(ratios, milliseconds(a)/a.Work)
		for _, b := range samples[:i] {
			if math.Abs(a.Work-b.Work) > 0.05*max(a.Work, b.Work) {
				slopes = append(slopes, (milliseconds(a)-milliseconds(b))/(a.Work-b.Work))
			}
		}
	}
	if len(slopes) == 0 {
		// All had the same size: assume that a tenth of the time does not depend on it.
		t, w := median(times), median(works)
		return fit{base: t / 10, slope: t * 9 / 10 / w}
	}
	f := fit{slope: max(median(slopes), 0)}
	var rest []float64
	for i := range samples {
		rest = append(rest, times[i]-f.slope*works[i])
	}
	if f.base = median(rest); f.base < 0 {
		f = fit{slope: median(ratios)}
	}
	return f
}

// usual returns the samples that are not far from the line, or all if that would leave less than
// half.
func usual(samples []Sample, f fit) []Sample {
	var out []Sample
	for _, s := range samples {
		if by := milliseconds(s) / f.ran(s.Work); by > 0.4 && by < 2.5 {
			out = append(out, s)
		}
	}
	if 2*len(out) < len(samples) {
		return samples
	}
	return out
}

// paced scales the line if the last runs agree that the pace has changed.
func (f fit) paced(last []Sample) fit {
	var ratios []float64
	for _, s := range last {
		ratios = append(ratios, milliseconds(s)/f.ran(s.Work))
	}
	if slices.Min(ratios) > 1.25 || slices.Max(ratios) < 0.8 {
		by := median(ratios)
		f.base, f.slope = f.base*by, f.slope*by
	}
	return f
}

func milliseconds(s Sample) float64 { return float64(s.Ran) / float64(time.Millisecond) }

// median returns the median of the values, which it sorts; 0 for none.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// Encode returns the stored form of a sample.
func (s Sample) Encode() string {
	mark := "w"
	if s.Cold {
		mark = "c"
	}
	return strconv.FormatFloat(s.Work, 'g', 6, 64) + mark + strconv.FormatInt(s.Ran.Milliseconds(), 10)
}

// DecodeSamples reads samples in their stored form, separated by spaces, and skips what it cannot
// read: another version may have written it.
func DecodeSamples(text string) []Sample {
	var out []Sample
	for part := range strings.FieldsSeq(text) {
		at := strings.IndexAny(part, "wc")
		if at < 0 {
			continue
		}
		work, err := strconv.ParseFloat(part[:at], 64)
		ms, err2 := strconv.ParseInt(part[at+1:], 10, 64)
		s := Sample{Work: work, Ran: time.Duration(min(max(ms, 0), maxRan.Milliseconds())) * time.Millisecond, Cold: part[at] == 'c'}
		if err == nil && err2 == nil && s.valid() {
			out = append(out, s)
		}
	}
	return out[max(0, len(out)-keptSamples):]
}

func (s Sample) valid() bool {
	return s.Work >= 1e-3 && s.Work <= maxWork && s.Ran > 0 && s.Ran <= maxRan
}
