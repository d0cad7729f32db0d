package schedule

import (
	"strings"
	"sync"
	"time"
)

// Source is what an estimate is based on, from best to worst.
type Source string

// The sources of estimates.
const (
	// Learned: from runs of this structure on this GPU type.
	Learned Source = "learned"
	// OtherGPU: from runs of this structure on another GPU type.
	OtherGPU Source = "other_gpu"
	// Alike: from runs of graphs that end in the same classes.
	Alike Source = "alike"
	// Typical: from all runs.
	Typical Source = "typical"
	// Guess: nothing is known.
	Guess Source = "guess"
)

// Estimate is how long a run will take.
type Estimate struct {
	// Ran is the time with the models loaded.
	Ran time.Duration
	// Load is the time to load the models if the run before used others.
	Load time.Duration
	// Spread is the usual error, as a share of Ran.
	Spread float64
	Source Source
}

// Certain reports whether it is good enough to show: the same structure has run before.
func (e Estimate) Certain() bool { return e.Source == Learned || e.Source == OtherGPU }

// Remaining returns the rest of a run. One that is taking longer than it should is given another
// tenth of the time it has taken so far.
func Remaining(estimate, elapsed time.Duration) time.Duration {
	return max(estimate-elapsed, elapsed/10)
}

const (
	// MaxCells bounds the known pairs of a structure and a GPU type; those not seen for longest go
	// first. A pair takes at most some 500 bytes.
	MaxCells = 2000
	// firstGuess is the assumed time of a run while nothing is known.
	firstGuess = 10 * time.Second
)

// Pair is a structure on a GPU type.
type Pair struct{ Structure, Kind, GPU string }

// Field returns the stored name of a pair.
func (p Pair) Field() string { return p.Structure + ":" + p.Kind + ":" + p.GPU }

// ParsePair reads the stored name of a pair.
func ParsePair(field string) (Pair, bool) {
	parts := strings.SplitN(field, ":", 3)
	if len(parts) != 3 || parts[0] == "" {
		return Pair{}, false
	}
	return Pair{parts[0], parts[1], parts[2]}, true
}

// GPUType returns the type of a GPU, given what an instance says about it, such as "cuda:0 NVIDIA
// GeForce RTX 4090 : cudaMallocAsync".
func GPUType(name string) string {
	if device, rest, ok := strings.Cut(name, " "); ok && strings.Contains(device, ":") {
		name = rest
	}
	name, _, _ = strings.Cut(name, " : ")
	return name[:min(len(name), 64)]
}

type cell struct {
	Pair
	samples []Sample
	fit     fit
	used    uint64
}

// typical returns the median run of the cell.
func (c *cell) typical() float64 {
	var times []float64
	for _, s := range c.samples {
		times = append(times, milliseconds(s))
	}
	return median(times)
}

// Estimator learns and estimates. It is safe for concurrent use. The zero value knows nothing and
// is ready to use.
type Estimator struct {
	mu    sync.Mutex
	clock uint64
	// cells are by structure, then by GPU type.
	cells map[string]map[string]*cell
	count int
	// general is what all cells together tell; nil if they have changed since.
	general *general
}

type general struct {
	kinds map[string]float64
	all   float64
	// paces are the ratios of two GPU types' times, as far as somebody asked for them.
	paces map[[2]string]float64
}

// Add learns from one run.
func (e *Estimator) Add(p Pair, s Sample) {
	if !s.valid() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cell(p)
	c.samples = append(c.samples, s)
	c.samples = c.samples[max(0, len(c.samples)-keptSamples):]
	e.changed(c)
}

// Set replaces what is known about a pair with what all hubs know, the oldest run first.
func (e *Estimator) Set(p Pair, samples []Sample) {
	if len(samples) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cell(p)
	c.samples = samples[max(0, len(samples)-keptSamples):]
	e.changed(c)
}

func (e *Estimator) cell(p Pair) *cell {
	if e.cells == nil {
		e.cells = map[string]map[string]*cell{}
	}
	c := e.cells[p.Structure][p.GPU]
	if c == nil {
		if e.count >= MaxCells {
			e.evict()
		}
		if e.cells[p.Structure] == nil {
			e.cells[p.Structure] = map[string]*cell{}
		}
		c = &cell{Pair: p}
		e.cells[p.Structure][p.GPU] = c
		e.count++
	}
	return c
}

func (e *Estimator) changed(c *cell) {
	e.clock++
	c.used = e.clock
	c.fit = fitOf(c.samples)
	e.general = nil
}

// Loading returns how much longer a run of a structure takes on a GPU type if it has to load its
// models, and how many of the runs that are known had to; zeros if nothing is known.
func (e *Estimator) Loading(s Structure, gpu string) (extra time.Duration, cold, runs int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cells[s.Key][gpu]
	if c == nil {
		return 0, 0, 0
	}
	for _, sample := range c.samples {
		if sample.Cold {
			cold++
		}
	}
	return time.Duration(c.fit.load * float64(time.Millisecond)), cold, len(c.samples)
}

// evict drops the pair that has gone longest without learning.
func (e *Estimator) evict() {
	var oldest *cell
	for _, gpus := range e.cells {
		for _, c := range gpus {
			if oldest == nil || c.used < oldest.used {
				oldest = c
			}
		}
	}
	delete(e.cells[oldest.Structure], oldest.GPU)
	if len(e.cells[oldest.Structure]) == 0 {
		delete(e.cells, oldest.Structure)
	}
	e.count--
}

// Estimate returns how long a run of a structure on a GPU type will take.
func (e *Estimator) Estimate(s Structure, gpu string) Estimate {
	e.mu.Lock()
	defer e.mu.Unlock()
	gpus := e.cells[s.Key]
	if c := gpus[gpu]; c != nil {
		return estimate(c.fit, s.Work, 1, c.fit.spread, Learned)
	}
	if e.general == nil {
		e.general = e.summary()
	}
	var best *cell
	for _, c := range gpus {
		if best == nil || c.used > best.used {
			best = c
		}
	}
	switch g := e.general; {
	case best != nil:
		return estimate(best.fit, s.Work, e.pace(gpu, best.GPU), max(best.fit.spread, 0.5), OtherGPU)
	case g.kinds[s.Kind] > 0:
		return flat(g.kinds[s.Kind], Alike)
	case g.all > 0:
		return flat(g.all, Typical)
	}
	return flat(float64(firstGuess.Milliseconds()), Guess)
}

// Longest returns the longest of the last runs of a structure on a GPU type, scaled to the graph's
// work, and how many runs are known. cold says to count only runs that had to load their models;
// else all count.
func (e *Estimator) Longest(s Structure, gpu string, cold bool) (longest time.Duration, runs int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cells[s.Key][gpu]
	if c == nil {
		return 0, 0
	}
	for _, sample := range c.samples {
		if sample.Cold || !cold {
			runs++
			longest = max(longest, duration(milliseconds(sample)*max(s.Work/sample.Work, 1)))
		}
	}
	return longest, runs
}

func estimate(f fit, work, by, spread float64, from Source) Estimate {
	return Estimate{Ran: duration(f.ran(work) * by), Load: duration(f.load * by), Spread: spread, Source: from}
}

func flat(ms float64, from Source) Estimate {
	return Estimate{Ran: duration(ms), Spread: 1, Source: from}
}

func duration(ms float64) time.Duration {
	return time.Duration(min(ms, float64(maxRan.Milliseconds())) * float64(time.Millisecond))
}

func (e *Estimator) summary() *general {
	kinds := map[string][]float64{}
	var all []float64
	for _, gpus := range e.cells {
		for _, c := range gpus {
			t := c.typical()
			kinds[c.Kind], all = append(kinds[c.Kind], t), append(all, t)
		}
	}
	g := &general{kinds: map[string]float64{}, all: median(all), paces: map[[2]string]float64{}}
	for kind, times := range kinds {
		g.kinds[kind] = median(times)
	}
	return g
}

// pace returns how much longer one GPU type takes than another, judging by the structures that both
// have run; 1 if there are none.
func (e *Estimator) pace(gpu, other string) float64 {
	k := [2]string{gpu, other}
	if p, ok := e.general.paces[k]; ok {
		return p
	}
	var ratios []float64
	for _, gpus := range e.cells {
		if a, b := gpus[gpu], gpus[other]; a != nil && b != nil {
			work := b.samples[len(b.samples)-1].Work
			ratios = append(ratios, a.fit.ran(work)/b.fit.ran(work))
		}
	}
	p := 1.0
	if len(ratios) > 0 {
		p = median(ratios)
	}
	e.general.paces[k] = p
	return p
}
