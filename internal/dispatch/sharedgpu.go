package dispatch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// gpuName names the GPU of an instance, "" if unknown. A name that an agent uses holds only among
// that agent's instances, except for the driver's own id, which no other machine can guess. said
// are the names that the operator gives in the hub's settings.
func gpuName(said map[string]string, i fleet.Instance) string {
	name := cmp.Or(said[i.Name], i.Report.Device)
	if name == "" || strings.HasPrefix(name, "GPU-") {
		return name
	}
	return i.Agent + "/" + name
}

// need returns how many bytes of GPU memory a job of a shape takes, 0 if unknown.
func (d *Dispatcher) need(shape, gpu string) int64 {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return 0
	}
	return d.durations.needs.Of(s, gpu)
}

// sharedGPUs returns the GPUs that several instances use, by name.
func (d *Dispatcher) sharedGPUs() map[string]*schedule.GPU {
	said := d.settings().GPUs
	users := map[string][]fleet.Instance{}
	for _, i := range d.Fleet.Instances() {
		if name := gpuName(said, i); name != "" {
			users[name] = append(users[name], i)
		}
	}
	shared := map[string]*schedule.GPU{}
	for name, instances := range users {
		if len(instances) < 2 {
			continue
		}
		g := &schedule.GPU{Name: name}
		kind := schedule.GPUType(instances[0].Report.GPU)
		needs := map[string]int64{} // one look asks for the same ones often
		g.Need = func(shape string) int64 {
			need, known := needs[shape]
			if !known {
				need = d.need(shape, kind)
				needs[shape] = need
			}
			return need
		}
		others := int64(0)
		for _, i := range instances {
			others = max(others, i.Report.OthersMemory)
			g.Total = max(g.Total, i.Report.VRAMTotal)
			if shape, runs := d.shapeAt(i); runs {
				g.Take(job.Job{Shape: shape})
			}
		}
		g.Total = max(g.Total-others, 0)
		shared[name] = g
	}
	return shared
}

// shapeAt returns whether an instance is running something, and the shape of that, "" if unknown.
func (d *Dispatcher) shapeAt(i fleet.Instance) (shape string, runs bool) {
	conn := d.connection(i.Name)
	if conn != nil {
		if r := conn.running(); r != nil {
			return r.job().Shape, true
		}
	}
	if i.State == fleet.Offline || !i.Report.Up || i.Report.Queue == 0 {
		return "", false
	}
	if conn != nil {
		shape, _, _ = conn.elsewhere(i)
	}
	return shape, true
}

// shareGPUs fills in the GPUs that idle instances share with others. names are those of their GPUs,
// in the same order.
func (d *Dispatcher) shareGPUs(idle []schedule.Idle, names []string) {
	if !slices.ContainsFunc(names, func(name string) bool { return name != "" }) {
		return
	}
	shared := d.sharedGPUs()
	for n, name := range names {
		idle[n].GPU = shared[name]
	}
}

// sharesGPU reports whether other instances use the same GPU.
func (d *Dispatcher) sharesGPU(i fleet.Instance) bool {
	said := d.settings().GPUs
	name := gpuName(said, i)
	return name != "" && slices.ContainsFunc(d.Fleet.Instances(), func(other fleet.Instance) bool {
		return other.Name != i.Name && gpuName(said, other) == name
	})
}

// weigh asks the instance how much GPU memory its process has taken for the run, if others use the
// same GPU.
func (r *run) weigh(ctx context.Context, conn *connection) {
	i, known := r.d.Fleet.Instance(conn.name)
	if !known || i.Report.OthersMemory == 0 && !r.d.sharesGPU(i) || !r.weighing.CompareAndSwap(false, true) {
		return
	}
	defer r.weighing.Store(false)
	ctx, cancel := context.WithTimeout(ctx, weighTimeout)
	defer cancel()
	stats, err := conn.client.SystemStats(ctx)
	if err != nil || len(stats.Devices) == 0 {
		return
	}
	took := min(stats.Devices[0].TorchTotal, stats.Devices[0].VRAMTotal)
	for {
		peak := r.peak.Load()
		if took <= peak || r.peak.CompareAndSwap(peak, took) {
			return
		}
	}
}

// weighTimeout bounds the question; an instance that is loading a model answers late.
const weighTimeout = 10 * time.Second
