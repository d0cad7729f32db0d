package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/run"
)

// Metrics are all measurements of a hub. They live
// as long as the hub and are registered again with each configuration, so that counters
// never restart. Its methods may be called at the same time.
type Metrics struct {
	jobs     map[string]prometheus.Counter // by outcome
	retries  map[run.Cause]prometheus.Counter
	adopted  map[run.Origin]prometheus.Counter
	gpus     *gpus
	busy     *busy
	repeated prometheus.Counter
	away     prometheus.Counter
	limited  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	reads    request
	writes   request
	sent     prometheus.Counter
	lag      prometheus.Observer
	inputs   prometheus.Counter
	outputs  prometheus.Counter
	all      []prometheus.Collector
	instance func(name string) (fleet.Instance, bool)
}

// request are the measurements of one kind of request to Redis.
type request struct{ took, unavailable, failed prometheus.Observer }

// counterOf lets a counter count what an Observer is told of.
type counterOf struct{ prometheus.Counter }

func (c counterOf) Observe(float64) { c.Inc() }

// Outcomes are all ends of runs.
func Outcomes() []string { return []string{"done", "failed", "cancelled", "lost", "rejected"} }

// New makes the measurements of a hub. instance finds one of its instances, and state reads what
// gauges show.
func New(instance func(name string) (fleet.Instance, bool), state func(ctx context.Context) State) *Metrics {
	m := &Metrics{instance: instance}
	m.all = append(m.all, newGauges(m, state))
	jobs := m.counters("comfyhub_jobs_total",
		"Runs that ended, by outcome: done, failed, cancelled, lost (to be run again), or rejected (refused while the client's POST waited).", "outcome")
	m.jobs = children(jobs, Outcomes())
	m.retries = children(m.counters("comfyhub_job_retries_total", "Jobs that run again, by the reason for which their last run was lost.", "cause"), run.Causes())
	m.adopted = children(m.counters("comfyhub_runs_adopted_total",
		"Runs that this hub has taken over, by origin: own (an earlier process of this hub), silent (a hub that is gone), or expired (a hub that did not renew its lease).",
		"origin"), run.Origins())
	m.gpus = newGPUs(m)
	m.busy = newBusy(m)
	m.repeated = m.counter("comfyhub_jobs_repeated_total", "Jobs that were given the result of an equal one, without an instance.")
	m.away = m.counter("comfyhub_redis_errors_total", "Requests that failed because Redis was away.")
	m.limited = m.counters("comfyhub_tenant_limit_refusals_total", "Requests refused because a tenant had reached one of its limits.", "limit")
	m.refused = m.counters("comfyhub_reports_refused_total",
		"Reports of agents that were not taken, by reason: unsigned, forged, unreadable, pinned, name, moved, full, unchecked.", "reason")
	took := m.histograms("comfyhub_redis_request_seconds", "Time that a script or command of Redis took, with all attempts.", shortBuckets, "kind")
	failed := m.counters("comfyhub_redis_request_errors_total", "Scripts and commands of Redis that failed.", "kind", "reason")
	of := func(kind string) request {
		return request{
			took.WithLabelValues(kind), counterOf{failed.WithLabelValues(kind, "unavailable")}, counterOf{failed.WithLabelValues(kind, "other")},
		}
	}
	m.reads, m.writes = of("read"), of("write")
	m.sent = m.counter("comfyhub_socket_sent_bytes_total", "Bytes of messages that were sent to WebSockets of clients, uncompressed.")
	m.lag = m.histograms("comfyhub_event_lag_seconds", "Time that a message of a run has waited for the socket of its client.", shortBuckets).WithLabelValues()
	m.inputs = m.counter("comfyhub_input_bytes_total", "Bytes of inputs that were copied to instances.")
	m.outputs = m.counter("comfyhub_output_bytes_total", "Bytes of outputs that were copied from instances.")
	return m
}

// Collectors are all of them, for a registry.
func (m *Metrics) Collectors() []prometheus.Collector { return m.all }

func (m *Metrics) counter(name, help string) prometheus.Counter {
	return m.counters(name, help).WithLabelValues()
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, vec)
	return vec
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(histogram(name, help, buckets), labels)
	m.all = append(m.all, vec)
	return vec
}

// children resolves the children of a vector with one label, once: they are there from the
// start, with zero, and counting needs no look-up of labels.
func children[T ~string](vec *prometheus.CounterVec, values []T) map[T]prometheus.Counter {
	out := make(map[T]prometheus.Counter, len(values))
	for _, value := range values {
		out[value] = vec.WithLabelValues(string(value))
	}
	return out
}

// gpu is the class of an instance's GPU.
func (m *Metrics) gpu(instance string) *gpu {
	i, _ := m.instance(instance)
	return m.gpus.of(i.Report.GPU)
}

// Dispatched implements [run.Observer].
func (m *Metrics) Dispatched(instance string, waited, gap time.Duration) {
	g := m.gpu(instance)
	g.wait.Observe(max(waited, 0).Seconds())
	g.gap.Observe(max(gap, 0).Seconds())
}

// Finished implements [run.Observer].
func (m *Metrics) Finished(e run.End) {
	if c := m.jobs[e.Outcome]; c != nil {
		c.Inc()
	}
	if e.Ran > 0 {
		m.busy.add(e.Instance, e.Band, e.Ran)
	}
	if e.Ran <= 0 && e.Took <= 0 {
		return
	}
	if e.Instance == "" {
		if e.Outcome == "done" {
			m.repeated.Inc()
		}
		return
	}
	g := m.gpu(e.Instance)
	if run := g.run[e.Outcome]; run != nil && e.Ran > 0 {
		run.Observe(e.Ran.Seconds())
	}
	if took := g.took[e.Outcome]; took != nil && e.Took > 0 {
		took.Observe(e.Took.Seconds())
	}
}

// Retried implements [run.Observer].
func (m *Metrics) Retried(cause run.Cause) {
	if c := m.retries[cause]; c != nil {
		c.Inc()
	}
}

// Adopted implements [run.Observer].
func (m *Metrics) Adopted(from run.Origin) {
	if c := m.adopted[from]; c != nil {
		c.Inc()
	}
}

// Switched implements [run.Observer].
func (m *Metrics) Switched(instance string, saved bool) {
	if g := m.gpu(instance); saved {
		g.saved.Inc()
	} else {
		g.switches.Inc()
	}
}

// Asked takes a request to Redis.
func (m *Metrics) Asked(r redis.Request) {
	of := &m.reads
	if r.Write {
		of = &m.writes
	}
	of.took.Observe(r.Took.Seconds())
	switch {
	case r.Err == nil:
	case errors.Is(r.Err, redis.ErrUnavailable):
		of.unavailable.Observe(1)
	default:
		of.failed.Observe(1)
	}
}

// Away counts a client's request that failed because Redis was away.
func (m *Metrics) Away() { m.away.Inc() }

// Limited counts a request that was refused because a tenant had reached a limit, by the
// name of the limit, which must not depend on the request.
func (m *Metrics) Limited(limit string) { m.limited.WithLabelValues(limit).Inc() }

// Refused counts a report of an agent that was not taken. The reason must be one of few.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// Sent implements the Observer of streams.
func (m *Metrics) Sent(bytes int) { m.sent.Add(float64(bytes)) }

// Lagged implements the Observer of streams.
func (m *Metrics) Lagged(lag time.Duration) { m.lag.Observe(lag.Seconds()) }

// Pushed counts an input that was copied to an instance.
func (m *Metrics) Pushed(bytes int64) { m.inputs.Add(float64(bytes)) }

// Fetched counts an output that was copied from an instance.
func (m *Metrics) Fetched(bytes int64) { m.outputs.Add(float64(bytes)) }

// Keep forgets the series of instances and GPUs that are gone. instances are those of the
// fleet now.
func (m *Metrics) Keep(instances []fleet.Instance) {
	m.gpus.keep(instances)
	m.busy.keep(instances)
}
