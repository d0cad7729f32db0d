package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

var (
	instancesDesc   = prometheus.NewDesc("comfyhub_instances", "Instances by state.", []string{"state"}, nil)
	unavailableDesc = prometheus.NewDesc("comfyhub_instance_unavailable",
		"1 for each instance that is offline or sick. An instance whose agent has said that it leaves is left out.", []string{"server", "state"}, nil)
	freeDesc  = prometheus.NewDesc("comfyhub_instance_vram_free_bytes", "GPU memory that is free at an instance, as it was last reported.", []string{"server", "gpu"}, nil)
	totalDesc = prometheus.NewDesc("comfyhub_gpu_vram_bytes", "Memory of all GPUs of a class that are present.", []string{"gpu"}, nil)
)

// DescribeFleet describes what CollectFleet collects.
func DescribeFleet(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instancesDesc, unavailableDesc, freeDesc, totalDesc} {
		out <- d
	}
}

// CollectFleet collects the state of the instances, and forgets the series of those that
// are gone.
func (m *Metrics) CollectFleet(out chan<- prometheus.Metric, instances []fleet.Instance) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m.Keep(instances)
	states := map[fleet.State]int{}
	for _, s := range fleet.States() {
		states[s] = 0
	}
	memory, counted := map[string]int64{}, map[string]bool{}
	for _, i := range instances {
		states[i.State]++
		if i.Report.VRAMTotal == 0 || i.State == fleet.Offline {
			continue
		}
		m.gpus.of(i.Report.GPU)
		if device := deviceOf(i); device == "" || !counted[device] {
			counted[device] = true
			memory[m.gpus.label(i.Report.GPU)] += i.Report.VRAMTotal
		}
	}
	for s, n := range states {
		gauge(instancesDesc, float64(n), string(s))
	}
	for class, bytes := range memory {
		gauge(totalDesc, float64(bytes), class)
	}
	for _, i := range m.busy.named(instances) {
		switch {
		case i.State != fleet.Offline && i.State != fleet.Sick:
			if i.Report.VRAMTotal > 0 {
				gauge(freeDesc, float64(i.Report.VRAMFree), i.Name, m.gpus.label(i.Report.GPU))
			}
		case !i.Left && i.URL != "": // else it is expected, or an agent that was refused
			gauge(unavailableDesc, 1, i.Name, string(i.State))
		}
	}
}

// deviceOf names the GPU of an instance among all; empty if that is not known. A name that
// is not the driver's holds for one agent alone.
func deviceOf(i fleet.Instance) string {
	if i.Report.Device == "" || strings.HasPrefix(i.Report.Device, "GPU-") {
		return i.Report.Device
	}
	return i.Agent + "/" + i.Report.Device
}
