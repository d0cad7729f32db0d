package hub

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// metrics are the hub's measurements. They live as long as the hub and are
// registered anew with each configuration, so that counters never restart. No
// label ever names a user, a prompt or a job.
type metrics struct {
	jobs   *prometheus.CounterVec
	wait   prometheus.Histogram
	run    *prometheus.HistogramVec
	gap    prometheus.Histogram
	faults prometheus.Counter
	// limited has the names of limits as labels, never those of tenants.
	limited *prometheus.CounterVec
	// refused are reports of agents that were not taken.
	refused *prometheus.CounterVec
	live    *gauges
}

// Buckets in seconds: pictures take seconds, videos many minutes.
var (
	longBuckets  = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	shortBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}
)

func newMetrics(h *Hub) *metrics {
	return &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comfyhub_jobs_total", Help: "Runs that ended, by outcome: done, failed, cancelled, lost (to be run again), or rejected (refused while the client's POST waited).",
		}, []string{"outcome"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "comfyhub_job_wait_seconds", Help: "Time from acceptance to an instance.", Buckets: longBuckets,
		}),
		run: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comfyhub_job_run_seconds", Help: "Time from the start of execution to the end.", Buckets: longBuckets,
		}, []string{"outcome"}),
		gap: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "comfyhub_dispatch_gap_seconds", Help: "Time in which a job and an idle instance that could run it both waited.", Buckets: shortBuckets,
		}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "comfyhub_redis_errors_total", Help: "Requests that failed because Redis was away.",
		}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comfyhub_tenant_limit_refusals_total", Help: "Requests refused because a tenant had reached one of its limits.",
		}, []string{"limit"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comfyhub_reports_refused_total",
			Help: "Reports of agents that were not taken, by reason: unsigned, forged, unreadable, pinned, name, moved, full, unchecked.",
		}, []string{"reason"}),
		live: newGauges(h),
	}
}

// Dispatched implements dispatch.Observer.
func (m *metrics) Dispatched(waited, gap time.Duration) {
	m.wait.Observe(waited.Seconds())
	m.gap.Observe(gap.Seconds())
}

// Finished implements dispatch.Observer.
func (m *metrics) Finished(outcome string, ran time.Duration) {
	m.jobs.WithLabelValues(outcome).Inc()
	if ran > 0 {
		m.run.WithLabelValues(outcome).Observe(ran.Seconds())
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.jobs, m.wait, m.run, m.gap, m.faults, m.limited, m.refused, m.live}
}

// gauges are read from the hub's state when they are asked for, so that what
// is gone vanishes.
type gauges struct {
	hub       *Hub
	queued    *prometheus.Desc
	running   *prometheus.Desc
	stuck     *prometheus.Desc
	instances *prometheus.Desc
	members   *prometheus.Desc
	sockets   *prometheus.Desc
	redis     *prometheus.Desc
	storage   *prometheus.Desc
	kept      *prometheus.Desc
	paused    *prometheus.Desc
}

func newGauges(h *Hub) *gauges {
	return &gauges{
		hub:       h,
		queued:    prometheus.NewDesc("comfyhub_queue_depth", "Jobs that wait.", nil, nil),
		running:   prometheus.NewDesc("comfyhub_jobs_running", "Jobs that are on an instance.", nil, nil),
		stuck:     prometheus.NewDesc("comfyhub_jobs_stuck", "Jobs that have been waiting for more than a second beside an idle instance that could run them, as this hub sees it. 0 in a healthy hub.", nil, nil),
		instances: prometheus.NewDesc("comfyhub_instances", "Instances by state.", []string{"state"}, nil),
		members:   prometheus.NewDesc("comfyhub_gossip_members", "Members of the gossip, this hub included, by role.", []string{"role"}, nil),
		sockets:   prometheus.NewDesc("comfyhub_sockets", "Open WebSockets of clients.", nil, nil),
		redis:     prometheus.NewDesc("comfyhub_redis_up", "1 while Redis answers.", nil, nil),
		storage:   prometheus.NewDesc("comfyhub_storage_up", "1 while the storage takes files. While it is 0, this hub gives out no jobs.", nil, nil),
		kept:      prometheus.NewDesc("comfyhub_outputs_kept", "Outputs of finished runs that wait on their instances until the storage takes them.", nil, nil),
		paused:    prometheus.NewDesc("comfyhub_paused", "1 while the operator has paused the whole queue.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.queued, g.running, g.stuck, g.instances, g.members, g.sockets, g.redis, g.storage, g.kept, g.paused} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	h := g.hub
	if !h.started.Load() {
		g.waiting(gauge)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	live, waiting, err := h.queue.CountAll(ctx)
	if err == nil {
		gauge(g.queued, float64(waiting))
		gauge(g.running, float64(live-waiting))
		gauge(g.redis, 1)
	} else {
		gauge(g.redis, 0)
	}
	gauge(g.storage, oneIf(h.storage.Health().Err() == nil))
	gauge(g.kept, float64(h.storage.Health().Kept()))
	gauge(g.paused, oneIf(h.stops.has(StopAll)))
	gauge(g.stuck, float64(h.dispatch.Stuck()))
	states := map[fleet.State]int{}
	for _, s := range fleet.States() {
		states[s] = 0
	}
	for _, i := range h.fleet.Instances() {
		states[i.State]++
	}
	for s, n := range states {
		gauge(g.instances, float64(n), string(s))
	}
	hubs, agents := h.gossip.counts()
	gauge(g.members, float64(hubs), "hub")
	gauge(g.members, float64(agents), "agent")
	gauge(g.sockets, float64(h.streams.Sockets()))
}

// waiting shows what a hub waits for that does not serve yet.
func (g *gauges) waiting(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	why := g.hub.opening.reason()
	if why == nil {
		return
	}
	gauge(g.redis, oneIf(!errors.Is(why, redis.ErrUnavailable) && !errors.Is(why, errNoAnswer)))
	gauge(g.storage, oneIf(!errors.Is(why, files.ErrStorage) && !errors.Is(why, errNoAnswer)))
}

func oneIf(well bool) float64 {
	if well {
		return 1
	}
	return 0
}
