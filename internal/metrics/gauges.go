package metrics

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/overflow"
	"github.com/comfyhub/comfyhub/internal/scale"
)

// State is what gauges show of a hub.
type State struct {
	Version string
	// Known says that RedisUp and StorageUp are known, and Serves that everything is.
	Known, Serves      bool
	RedisUp, StorageUp bool
	// Waiting and Running are jobs; of those that wait, their owners have paused Held. They are known
	// while Redis answers.
	Waiting, Held, Running int
	Paused, Bound          bool
	Kept, Stuck            int
	Classes, Sockets       int
	Hubs, Agents           int
	Skew                   time.Duration
	Disks                  []*Disk
	Instances              []fleet.Instance
	Endpoints              []overflow.Status
	Scaled                 []scale.Status
}

// gauge shows one number of a T, unless it is NaN.
type gauge[T any] struct {
	desc  *prometheus.Desc
	value func(of T) float64
}

func show[T any](out chan<- prometheus.Metric, gauges []gauge[T], of T, labels ...string) {
	for _, g := range gauges {
		if v := g.value(of); !math.IsNaN(v) {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, labels...)
		}
	}
}

func describe[T any](out chan<- *prometheus.Desc, gauges []gauge[T]) {
	for _, g := range gauges {
		out <- g.desc
	}
}

// gauges are read from the hub's state when they are asked for, so that what is gone disappears.
type gauges struct {
	metrics *Metrics
	read    func(ctx context.Context) State

	build, outside, jobs, inside []gauge[*State]
	members                      []gauge[int]
	disks                        []gauge[*Disk]
	endpoints                    []gauge[overflow.Status]
	scaled                       []gauge[scale.Status]
}

func newGauges(m *Metrics, read func(ctx context.Context) State) *gauges {
	of := func(name, help string, value func(s *State) float64) gauge[*State] {
		return gauge[*State]{prometheus.NewDesc(name, help, nil, nil), value}
	}
	members := prometheus.NewDesc("comfyhub_gossip_members", "Members of the gossip, this hub included, by role.", []string{"role"}, nil)
	disk := func(name, help string, value func(free, size uint64) uint64) gauge[*Disk] {
		return gauge[*Disk]{prometheus.NewDesc(name, help, []string{"folder"}, nil), func(d *Disk) float64 {
			free, size, ok := d.Space()
			return knownIf(ok, float64(value(free, size)))
		}}
	}
	endpoint := func(name, help string, value func(s overflow.Status) float64) gauge[overflow.Status] {
		return gauge[overflow.Status]{prometheus.NewDesc(name, help, []string{"endpoint"}, nil), value}
	}
	class := func(name, help string, value func(s scale.Status) float64) gauge[scale.Status] {
		return gauge[scale.Status]{prometheus.NewDesc(name, help, []string{"class"}, nil), value}
	}
	return &gauges{
		metrics: m, read: read,
		build: []gauge[*State]{{prometheus.NewDesc("comfyhub_build_info", "1, with the version of the hub.", []string{"version"}, nil), func(*State) float64 { return 1 }}},
		outside: []gauge[*State]{
			of("comfyhub_redis_up", "1 while Redis answers.", func(s *State) float64 { return oneIf(s.RedisUp) }),
			of("comfyhub_storage_up", "1 while the storage takes files. While it is 0, this hub gives out no jobs.", func(s *State) float64 { return oneIf(s.StorageUp) }),
		},
		jobs: []gauge[*State]{
			of("comfyhub_queue_depth", "Jobs that wait.", func(s *State) float64 { return float64(s.Waiting) }),
			of("comfyhub_jobs_paused", "Jobs that wait because their owner has paused them. They are part of comfyhub_queue_depth.", func(s *State) float64 { return float64(s.Held) }),
			of("comfyhub_jobs_running", "Jobs that are on an instance.", func(s *State) float64 { return float64(s.Running) }),
		},
		inside: []gauge[*State]{
			of("comfyhub_jobs_stuck", "Jobs that have been waiting for more than a second beside an idle instance that could run them, as this hub sees it. 0 in a healthy hub.", func(s *State) float64 { return float64(s.Stuck) }),
			of("comfyhub_sockets", "Open WebSockets of clients.", func(s *State) float64 { return float64(s.Sockets) }),
			of("comfyhub_redis_clock_skew_seconds", "By how much the clock of Redis is ahead of this machine's. Negative if it is behind.", func(s *State) float64 { return s.Skew.Seconds() }),
			of("comfyhub_storage_bound", "1 while Redis and the storage belong together. While it is 0, nothing is deleted from the storage.", func(s *State) float64 { return oneIf(s.Bound) }),
			of("comfyhub_outputs_kept", "Outputs of finished runs that wait on their instances until the storage takes them.", func(s *State) float64 { return float64(s.Kept) }),
			of("comfyhub_paused", "1 while the operator has paused the whole queue.", func(s *State) float64 { return oneIf(s.Paused) }),
			of("comfyhub_catalog_classes", "Node classes that the hub knows, of all instances together.", func(s *State) float64 { return float64(s.Classes) }),
		},
		members: []gauge[int]{{members, func(n int) float64 { return float64(n) }}},
		disks: []gauge[*Disk]{
			disk("comfyhub_disk_free_bytes", "Space that is left on the disk of a folder: data, or storage if that is a folder.", func(free, _ uint64) uint64 { return free }),
			disk("comfyhub_disk_size_bytes", "Size of the disk of a folder.", func(_, size uint64) uint64 { return size }),
		},
		endpoints: []gauge[overflow.Status]{
			endpoint("comfyhub_overflow_running", "Runs that this hub has at a serverless endpoint.", func(s overflow.Status) float64 { return float64(s.Running) }),
			endpoint("comfyhub_overflow_spent", "What the runs at an endpoint have cost today by UTC, in the money of its price.", func(s overflow.Status) float64 { return s.Spent }),
			endpoint("comfyhub_overflow_set_aside", "What the runs that go on at an endpoint may cost at most.", func(s overflow.Status) float64 { return s.Aside }),
			endpoint("comfyhub_overflow_budget", "What the runs at an endpoint may cost a day.", func(s overflow.Status) float64 { return knownIf(s.Budget > 0, s.Budget) }),
			endpoint("comfyhub_overflow_closed", "1 while an endpoint takes no runs: it fails, or its budget is spent.", func(s overflow.Status) float64 { return oneIf(s.Closed != "") }),
		},
		scaled: []gauge[scale.Status]{
			class("comfyhub_instances_wanted", "How many instances of a class there are to be, those that are leaving included.", func(s scale.Status) float64 { return float64(s.Wanted) }),
			class("comfyhub_instances_starting", "Instances that were asked for and have not joined yet.", func(s scale.Status) float64 { return float64(s.Starting) }),
			class("comfyhub_scale_spent", "What the machines of a class have cost today by UTC, in the money of their price.", func(s scale.Status) float64 { return knownIf(s.Price > 0, s.Spent) }),
			class("comfyhub_scale_budget", "What the machines of a class may cost a day.", func(s scale.Status) float64 { return knownIf(s.Budget > 0, s.Budget) }),
			class("comfyhub_scale_failing", "1 while the provider of a class fails, or the machines that it has started do not join.", func(s scale.Status) float64 { return oneIf(s.Error != "" || s.FailedStarts > 0) }),
		},
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, list := range [][]gauge[*State]{g.build, g.outside, g.jobs, g.inside} {
		describe(out, list)
	}
	describe(out, g.members)
	describe(out, g.disks)
	describe(out, g.endpoints)
	describe(out, g.scaled)
	describeFleet(out)
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s := g.read(ctx)
	show(out, g.build, &s, s.Version)
	if s.Known {
		show(out, g.outside, &s)
	}
	if !s.Serves {
		return
	}
	if s.RedisUp {
		show(out, g.jobs, &s)
	}
	show(out, g.inside, &s)
	show(out, g.members, s.Hubs, "hub")
	show(out, g.members, s.Agents, "agent")
	for _, d := range s.Disks {
		show(out, g.disks, d, d.Folder())
	}
	for _, e := range s.Endpoints {
		show(out, g.endpoints, e, e.Endpoint)
	}
	for _, c := range s.Scaled {
		show(out, g.scaled, c, c.Class)
	}
	g.metrics.collectFleet(out, s.Instances)
}

func oneIf(well bool) float64 {
	if well {
		return 1
	}
	return 0
}

// knownIf returns a number, or NaN if it is not known.
func knownIf(known bool, v float64) float64 {
	if known {
		return v
	}
	return math.NaN()
}
