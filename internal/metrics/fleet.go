package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

var (
	instancesDesc   = prometheus.NewDesc("comfyhub_instances", "Instances by state.", []string{"state"}, nil)
	unavailableDesc = prometheus.NewDesc("comfyhub_instance_unavailable",
		"1 for each instance that is offline, unhealthy (state sick), or set aside (state aside) because its runs fail. Instances whose agent has left on purpose are not counted.", []string{"server", "state"}, nil)
	freeDesc   = prometheus.NewDesc("comfyhub_instance_vram_free_bytes", "GPU memory that is free at an instance, as it was last reported.", []string{"server", "gpu"}, nil)
	othersDesc = prometheus.NewDesc("comfyhub_instance_vram_others_bytes",
		"GPU memory that programs hold which are no instance, at the instances where they hold the most.", []string{"server", "gpu"}, nil)
	classOthersDesc = prometheus.NewDesc("comfyhub_gpu_vram_others_bytes", "Memory of all GPUs of a class that programs hold which are no instance.", []string{"gpu"}, nil)
	diskDesc        = prometheus.NewDesc("comfyhub_instance_disk_free_ratio",
		"Free part of the fullest disk into which an instance writes, at the instances where it is the smallest.", []string{"server"}, nil)
	fullDesc  = prometheus.NewDesc("comfyhub_instance_disk_full", "1 for each instance that gets no jobs because its disk is full.", []string{"server"}, nil)
	totalDesc = prometheus.NewDesc("comfyhub_gpu_vram_bytes", "Memory of all GPUs of a class that are present.", []string{"gpu"}, nil)
)

// describeFleet describes what collectFleet collects.
func describeFleet(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instancesDesc, unavailableDesc, freeDesc, totalDesc, othersDesc, classOthersDesc, diskDesc, fullDesc} {
		out <- d
	}
}

// collectFleet collects the state of the instances, and forgets the series of those that
// are gone.
func (m *Metrics) collectFleet(out chan<- prometheus.Metric, instances []fleet.Instance) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m.Keep(instances)
	states := map[fleet.State]int{}
	for _, s := range fleet.States() {
		states[s] = 0
	}
	memory, others, counted := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for _, i := range instances {
		states[i.State]++
		if i.Report.VRAMTotal == 0 || i.State == fleet.Offline {
			continue
		}
		m.gpus.of(i.Report.GPU)
		if device := deviceOf(i); device == "" || !counted[device] {
			counted[device] = true
			memory[m.gpus.label(i.Report.GPU)] += i.Report.VRAMTotal
			others[m.gpus.label(i.Report.GPU)] += i.Report.OthersMemory
		}
	}
	for s, n := range states {
		gauge(instancesDesc, float64(n), string(s))
	}
	for class, bytes := range memory {
		gauge(totalDesc, float64(bytes), class)
		gauge(classOthersDesc, float64(others[class]), class)
	}
	named := m.busy.named(instances)
	for _, i := range most(named, func(i fleet.Instance) float64 { return float64(i.Report.OthersMemory) }) {
		gauge(othersDesc, float64(i.Report.OthersMemory), i.Name, m.gpus.label(i.Report.GPU))
	}
	for _, i := range most(named, diskUse) {
		gauge(diskDesc, 1-diskUse(i), i.Name)
		if i.Report.DiskFull {
			gauge(fullDesc, 1, i.Name)
		}
	}
	for _, i := range named {
		switch {
		case i.State != fleet.Offline && i.State != fleet.Sick:
			if i.Report.VRAMTotal > 0 {
				gauge(freeDesc, float64(i.Report.VRAMFree), i.Name, m.gpus.label(i.Report.GPU))
			}
		case !i.Left && i.URL != "": // else it is expected, or an agent that was refused
			state := string(i.State)
			if i.Aside {
				state = "aside"
			}
			gauge(unavailableDesc, 1, i.Name, state)
		}
	}
}

// maxMost is how many instances have a series of what only those with the most have.
const maxMost = 64

// most returns those of the present instances for which a value is the largest, without
// those for which it is 0.
func most(instances []fleet.Instance, value func(fleet.Instance) float64) []fleet.Instance {
	var list []fleet.Instance
	for _, i := range instances {
		if i.State != fleet.Offline && value(i) > 0 {
			list = append(list, i)
		}
	}
	if len(list) > maxMost {
		slices.SortStableFunc(list, func(a, b fleet.Instance) int { return cmp.Compare(value(b), value(a)) })
		list = list[:maxMost]
	}
	return list
}

// diskUse is how much of an instance's fullest disk is used, from 0 to 1; 0 if that is not
// known.
func diskUse(i fleet.Instance) float64 {
	if i.Report.DiskSize <= 0 {
		return 0
	}
	return 1 - float64(i.Report.DiskFree)/float64(i.Report.DiskSize)
}

// deviceOf names the GPU of an instance among all; empty if that is not known. A name that
// is not the driver's holds for one agent alone.
func deviceOf(i fleet.Instance) string {
	if i.Report.Device == "" || strings.HasPrefix(i.Report.Device, "GPU-") {
		return i.Report.Device
	}
	return i.Agent + "/" + i.Report.Device
}
