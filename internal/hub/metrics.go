package hub

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/metrics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// gauges are read from the hub's state when they are asked for, so that what is gone disappears.
type gauges struct {
	hub      *Hub
	queued   *prometheus.Desc
	held     *prometheus.Desc
	running  *prometheus.Desc
	stuck    *prometheus.Desc
	members  *prometheus.Desc
	sockets  *prometheus.Desc
	redis    *prometheus.Desc
	skew     *prometheus.Desc
	storage  *prometheus.Desc
	bound    *prometheus.Desc
	kept     *prometheus.Desc
	paused   *prometheus.Desc
	classes  *prometheus.Desc
	free     *prometheus.Desc
	size     *prometheus.Desc
	build    *prometheus.Desc
	elastic  elasticGauges
	overflow overflowGauges
}

func newGauges(h *Hub) *gauges {
	return &gauges{
		hub:      h,
		queued:   prometheus.NewDesc("comfyhub_queue_depth", "Jobs that wait.", nil, nil),
		held:     prometheus.NewDesc("comfyhub_jobs_paused", "Jobs that wait because their owner has paused them. They are part of comfyhub_queue_depth.", nil, nil),
		running:  prometheus.NewDesc("comfyhub_jobs_running", "Jobs that are on an instance.", nil, nil),
		stuck:    prometheus.NewDesc("comfyhub_jobs_stuck", "Jobs that have been waiting for more than a second beside an idle instance that could run them, as this hub sees it. 0 in a healthy hub.", nil, nil),
		members:  prometheus.NewDesc("comfyhub_gossip_members", "Members of the gossip, this hub included, by role.", []string{"role"}, nil),
		sockets:  prometheus.NewDesc("comfyhub_sockets", "Open WebSockets of clients.", nil, nil),
		redis:    prometheus.NewDesc("comfyhub_redis_up", "1 while Redis answers.", nil, nil),
		skew:     prometheus.NewDesc("comfyhub_redis_clock_skew_seconds", "By how much the clock of Redis is ahead of this machine's. Negative if it is behind.", nil, nil),
		storage:  prometheus.NewDesc("comfyhub_storage_up", "1 while the storage takes files. While it is 0, this hub gives out no jobs.", nil, nil),
		bound:    prometheus.NewDesc("comfyhub_storage_bound", "1 while Redis and the storage belong together. While it is 0, nothing is deleted from the storage.", nil, nil),
		kept:     prometheus.NewDesc("comfyhub_outputs_kept", "Outputs of finished runs that wait on their instances until the storage takes them.", nil, nil),
		paused:   prometheus.NewDesc("comfyhub_paused", "1 while the operator has paused the whole queue.", nil, nil),
		classes:  prometheus.NewDesc("comfyhub_catalog_classes", "Node classes that the hub knows, of all instances together.", nil, nil),
		free:     prometheus.NewDesc("comfyhub_disk_free_bytes", "Space that is left on the disk of a folder: data, or storage if that is a folder.", []string{"folder"}, nil),
		size:     prometheus.NewDesc("comfyhub_disk_size_bytes", "Size of the disk of a folder.", []string{"folder"}, nil),
		elastic:  newElasticGauges(),
		overflow: newOverflowGauges(),
		build:    prometheus.NewDesc("comfyhub_build_info", "1, with the version of the hub.", []string{"version"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.queued, g.held, g.running, g.stuck, g.members, g.sockets, g.redis, g.skew, g.storage, g.bound, g.kept, g.paused, g.classes, g.free, g.size, g.build,
	} {
		out <- d
	}
	g.elastic.describe(out)
	g.overflow.describe(out)
	metrics.DescribeFleet(out)
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	h := g.hub
	gauge(g.build, 1, config.Version)
	if !h.started.Load() {
		g.waiting(gauge)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	live, waiting, held, err := h.queue.CountAll(ctx)
	if err == nil {
		gauge(g.queued, float64(waiting))
		gauge(g.held, float64(held))
		gauge(g.running, float64(live-waiting))
		gauge(g.redis, 1)
	} else {
		gauge(g.redis, 0)
	}
	if places, err := h.Overflow(ctx); err == nil {
		g.overflow.collect(gauge, places)
	}
	if classes, err := h.Scale(ctx); err == nil {
		g.elastic.collect(gauge, classes)
	}
	gauge(g.skew, h.db.Clock().Skew().Seconds())
	gauge(g.storage, oneIf(h.storage.Health().Err() == nil))
	gauge(g.bound, oneIf(h.bond.Err() == nil))
	gauge(g.kept, float64(h.storage.Health().Kept()))
	gauge(g.paused, oneIf(h.stops.Has(queue.StopAll)))
	gauge(g.stuck, float64(h.dispatch.Watchdog.Stuck()))
	gauge(g.classes, float64(len(h.inventory.Catalog().Classes())))
	h.measure.CollectFleet(out, h.fleet.Instances())
	for _, d := range h.disks {
		if free, size, ok := d.Space(); ok {
			gauge(g.free, float64(free), d.Folder())
			gauge(g.size, float64(size), d.Folder())
		}
	}
	hubs, agents := h.gossip.counts()
	gauge(g.members, float64(hubs), "hub")
	gauge(g.members, float64(agents), "agent")
	gauge(g.sockets, float64(h.streams.Sockets()))
}

// waiting shows what a hub that does not serve yet is waiting for.
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

// openDisks names the folders whose disks must not fill up.
func (h *Hub) openDisks() {
	h.disks = []*metrics.Disk{metrics.NewDisk("data", h.id.Data)}
	if dir := h.storage.Dir(); dir != "" {
		h.disks = append(h.disks, metrics.NewDisk("storage", dir))
	}
}
