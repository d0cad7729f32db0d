package dispatch

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// reports answers questions about instances from what the fleet reports of them.
type reports struct {
	fleet    *fleet.Registry
	settings func() Settings
}

// gpu returns the GPU type of an instance.
func (r *reports) gpu(instance string) string {
	i, _ := r.fleet.Instance(instance)
	return schedule.GPUType(i.Report.GPU)
}

// works reports whether an instance takes jobs of this hub, now or once it is free.
func (r *reports) works(name string) bool {
	i, known := r.fleet.Instance(name)
	return known && (i.State == fleet.Idle || i.State == fleet.Busy)
}

// patience returns how long a run is kept whose instance can neither be reached nor is reported
// to have it.
func (r *reports) patience(instance string) time.Duration {
	patience := r.settings().ContactTimeout
	if i, known := r.fleet.Instance(instance); !known || i.Left {
		patience *= arrivalFactor
	}
	return patience
}

// vouched reports whether an agent says now that a run is going on: whatever keeps this hub from
// reaching the instance, nothing is lost yet.
func (r *reports) vouched(held job.Run) bool {
	i, known := r.fleet.Instance(held.Instance)
	// The report names the running prompt. This one may be waiting behind it.
	return known && (i.Has(held.Key) || i.Has(i.Report.Job) && i.Report.Queue-i.Report.Foreign > 1)
}

const (
	// arrivalFactor times ContactTimeout is how long a run is kept whose instance nobody has
	// reported to this hub yet, or whose agent has left: the instance goes on working, and the
	// agent may only be restarting. An agent that knows another hub looks once a minute for one
	// that has restarted.
	arrivalFactor = 6
	// vouchFactor times ContactTimeout is the longest a run is kept whose instance this hub cannot
	// reach while reports say that it is still going on there.
	vouchFactor = 40
	// unwantedPatience is how long a cancelled run waits for an instance that cannot be reached.
	// Whatever is still running there is stopped when the instance is back.
	unwantedPatience = 2 * time.Second
)

// sharesGPU reports whether other instances use the same GPU.
func (r *reports) sharesGPU(i fleet.Instance) bool {
	said := r.settings().GPUs
	name := gpuName(said, i)
	return name != "" && slices.ContainsFunc(r.fleet.Instances(), func(other fleet.Instance) bool {
		return other.Name != i.Name && gpuName(said, other) == name
	})
}

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

// memory returns how much GPU memory an instance can use, in bytes; 0 if unknown.
func (r *reports) memory(conn *connection) int64 {
	i, _ := r.fleet.Instance(conn.name)
	return i.Report.Memory()
}

// target returns a connection's instance in the form that package files uses.
func (r *reports) target(conn *connection) files.Target {
	i, _ := r.fleet.Instance(conn.name)
	return files.Target{Name: conn.name, Boot: i.BootID(), Instance: conn.client}
}

// isIdle reports whether an instance can take a job now.
func (r *reports) isIdle(conn *connection) bool {
	i, known := r.fleet.Instance(conn.name)
	if !known || !conn.usable(i) {
		return false
	}
	_, _, ok := conn.idle()
	return ok
}
