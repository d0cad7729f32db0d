package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// metrics are what Prometheus collects. No label is ever a user, a chat or an id.
type metrics struct {
	registry *prometheus.Registry
	events   *prometheus.CounterVec
	requests *prometheus.CounterVec
	calls    *prometheus.CounterVec
	handling prometheus.Histogram
	panics   prometheus.Counter
	words    *prometheus.HistogramVec
}

const namespace = "comfyhub_bridge"

func newMetrics(b *Bridge) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "events_total", Help: "What people did: said, edited, pressed; result is new, seen or dropped.",
		}, []string{"platform", "kind", "result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "requests_total", Help: "Requests that are over, by what they came to; done: everything has arrived.",
		}, []string{"command", "outcome"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "calls_total", Help: "Attempts to call a chat platform, by how they went.",
		}, []string{"platform", "call", "result"}),
		handling: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "handling_seconds", Help: "How long a message was handled, the first answer included.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60},
		}),
		words: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "enhance_seconds", Help: "Calls for other words, by task (improve, translate) and result: ok, busy, away, odd or refused.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 60},
		}, []string{"task", "result"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "panics_total", Help: "Events whose handling failed badly.",
		}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value)
	}
	m.registry.MustRegister(
		m.events, m.requests, m.calls, m.handling, m.panics, m.words, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("requests_active", "Requests that are not over.", func() float64 { return float64(b.runner.Active()) }),
		gauge("outbox_waiting", "Calls that wait to be made.", func() float64 { return float64(b.out.Waiting()) }),
		gauge("leader", "1 on the process that acts.", func() float64 { return truth(b.leads.Load()) }),
		gauge("hub_up", "1 when the hub has answered in the last minute.", func() float64 { return truth(b.hubUp()) }),
	)
	return m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) heard(e platform.Event, fresh bool) {
	result := "seen"
	if fresh {
		result = "new"
	}
	m.events.WithLabelValues(e.Platform, string(e.Kind), result).Inc()
}

func (m *metrics) dropped(e platform.Event) {
	m.events.WithLabelValues(e.Platform, string(e.Kind), "dropped").Inc()
}

func (m *metrics) sent(platformName, call, result string) {
	m.calls.WithLabelValues(platformName, call, result).Inc()
}

func (m *metrics) ended(command string, outcome request.Outcome) {
	m.requests.WithLabelValues(command, string(outcome)).Inc()
}

func (m *metrics) enhanced(task enhance.Task, err error, took time.Duration) {
	result := "ok"
	switch {
	case errors.Is(err, enhance.ErrBusy):
		result = "busy"
	case errors.Is(err, enhance.ErrOdd):
		result = "odd"
	case errors.Is(err, enhance.ErrRefused):
		result = "refused"
	case err != nil:
		result = "away"
	}
	m.words.WithLabelValues(string(task), result).Observe(took.Seconds())
}

func (b *Bridge) hubUp() bool { return time.Since(time.Unix(0, b.hubSeen.Load())) < time.Minute }

// handler serves health, metrics and the platforms' own routes.
func (b *Bridge) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(b.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /health/live", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /health/ready", b.ready)
	for _, p := range b.platforms {
		for pattern, handler := range p.Routes(b.admit) {
			mux.Handle(pattern, handler)
		}
	}
	return mux
}

// healthy is a platform that knows whether messages reach it.
type healthy interface{ Health(now time.Time) error }

// ready reports whether messages can be accepted: that needs the state, that the platforms
// deliver them, and that the hub lets the bridge in. A hub that is away is no reason: its
// requests wait.
func (b *Bridge) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	err := b.store.Ping(ctx)
	status := http.StatusOK
	if err != nil {
		status = http.StatusServiceUnavailable
	}
	body := map[string]any{"state": err == nil, "leader": b.leads.Load(), "hub": b.hubUp()}
	if err := b.hub.Denied(); err != nil {
		body["hub"], body["hub_problem"] = false, err.Error()
		status = http.StatusServiceUnavailable
	}
	for name, p := range b.platforms {
		h, ok := p.(healthy)
		if !ok {
			continue
		}
		body[name] = true
		if err := h.Health(time.Now()); err != nil {
			body[name], body[name+"_problem"] = false, err.Error()
			status = http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
