package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// MaxGPUs is how many classes of GPU are told apart. Those that come later are "other".
	MaxGPUs = 16
	// maxNames bounds the names of GPUs whose class is remembered.
	maxNames = 1024
	// maxClass bounds the name of a class in bytes.
	maxClass = 40

	otherGPU   = "other"
	unknownGPU = "unknown"
)

// gpu is one class of GPU with its measurements.
type gpu struct {
	wait, gap prometheus.Observer
	run, took map[string]prometheus.Observer // by outcome
	switches  prometheus.Counter
	saved     prometheus.Counter
}

// gpus are the classes of GPUs. An instance says itself what it has, so they are bounded:
// the first ones keep their place as long as an instance has them.
type gpus struct {
	wait, gap, run, took *prometheus.HistogramVec
	switches, saved      *prometheus.CounterVec

	mu      sync.Mutex
	names   map[string]*gpu // as instances write them
	classes map[string]*gpu
}

func newGPUs(m *Metrics) *gpus {
	return &gpus{
		wait: m.histograms("comfyhub_job_wait_seconds", "Time from acceptance to an instance.", longBuckets, "gpu"),
		gap: m.histograms("comfyhub_dispatch_gap_seconds",
			"Time in which a job and an idle instance that could run it both waited.", shortBuckets, "gpu"),
		run: m.histograms("comfyhub_job_run_seconds", "Time from the start of execution to the end.", longBuckets, "gpu", "outcome"),
		took: m.histograms("comfyhub_job_duration_seconds",
			"Time from acceptance to the end of a job that has run, with all its attempts.", longBuckets, "gpu", "outcome"),
		switches: m.counters("comfyhub_model_switches_total", "Runs that began on an instance which had other models loaded, or none.", "gpu"),
		saved:    m.counters("comfyhub_model_switches_saved_total", "Runs that went to an instance because it had their models loaded, where otherwise some would have been loaded.", "gpu"),
		names:    map[string]*gpu{}, classes: map[string]*gpu{},
	}
}

// of returns the class of a GPU by the name that an instance gives it.
func (s *gpus) of(name string) *gpu {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.names[name]; g != nil {
		return g
	}
	class := GPUClass(name)
	if s.classes[class] == nil && len(s.classes) >= MaxGPUs {
		class = otherGPU
	}
	g := s.classes[class]
	if g == nil {
		g = s.class(class)
		s.classes[class] = g
	}
	if len(s.names) >= maxNames {
		clear(s.names)
	}
	s.names[name] = g
	return g
}

// class makes a class. The caller holds the lock.
func (s *gpus) class(name string) *gpu {
	g := &gpu{
		wait: s.wait.WithLabelValues(name), gap: s.gap.WithLabelValues(name), switches: s.switches.WithLabelValues(name), saved: s.saved.WithLabelValues(name),
		run: map[string]prometheus.Observer{}, took: map[string]prometheus.Observer{},
	}
	for _, outcome := range []string{"done", "failed", "cancelled", "lost"} {
		g.run[outcome] = s.run.WithLabelValues(name, outcome)
		if outcome != "lost" { // the job goes on
			g.took[outcome] = s.took.WithLabelValues(name, outcome)
		}
	}
	return g
}

// label is the label of a class that [gpus.of] has given out.
func (s *gpus) label(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if class := GPUClass(name); s.classes[class] != nil {
		return class
	}
	return otherGPU
}

// keep forgets the classes that no instance has.
func (s *gpus) keep(instances []fleet.Instance) {
	here := map[string]bool{unknownGPU: true, otherGPU: true}
	for _, i := range instances {
		here[GPUClass(i.Report.GPU)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for class := range s.classes {
		if here[class] {
			continue
		}
		delete(s.classes, class)
		clear(s.names) // one that was counted as another may have a class of its own now
		label := prometheus.Labels{"gpu": class}
		for _, vec := range []interface {
			DeletePartialMatch(labels prometheus.Labels) int
		}{s.wait, s.gap, s.run, s.took, s.switches, s.saved} {
			vec.DeletePartialMatch(label)
		}
	}
}

// GPUClass is the class of a GPU, of what an instance says of it: "RTX 4090" of
// "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync". It is at most 40 letters, digits,
// spaces, dots, dashes and underscores.
func GPUClass(name string) string {
	var words []string
	for word := range strings.FieldsSeq(schedule.GPUType(name)) {
		word = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_", r) {
				return r
			}
			return -1
		}, word)
		switch word {
		case "", "NVIDIA", "GeForce", "AMD", "Radeon":
		default:
			words = append(words, word)
		}
	}
	class := strings.Join(words, " ")
	if class == "" {
		return unknownGPU
	}
	return strings.TrimSpace(class[:min(len(class), maxClass)])
}
