package instance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Reports answers questions about instances from what the fleet reports of them.
type Reports struct {
	fleet *fleet.Registry
	// contact returns how long an instance may be out of reach, and gpus the names of GPUs that the
	// operator has set, by instance.
	contact func() time.Duration
	gpus    func() map[string]string
}

// Gpu returns the GPU type of an instance.
func (r *Reports) Gpu(instance string) string {
	i, _ := r.fleet.Instance(instance)
	return schedule.GPUType(i.Report.GPU)
}

// Works reports whether an instance takes jobs of this hub, now or once it is free.
func (r *Reports) Works(name string) bool {
	i, known := r.fleet.Instance(name)
	return known && (i.State == fleet.Idle || i.State == fleet.Busy)
}

// Patience returns how long a run is kept whose instance can neither be reached nor is reported
// to have it.
func (r *Reports) Patience(instance string) time.Duration {
	patience := r.contact()
	if i, known := r.fleet.Instance(instance); !known || i.Left {
		patience *= arrivalFactor
	}
	return patience
}

// Vouched reports whether an agent says now that a run is going on: whatever keeps this hub from
// reaching the instance, nothing is lost yet.
func (r *Reports) Vouched(held job.Run) bool {
	i, known := r.fleet.Instance(held.Instance)
	// The report names the running prompt. This one may be waiting behind it.
	return known && (i.Has(held.Key) || i.Has(i.Report.Job) && i.Report.Queue-i.Report.Foreign > 1)
}

// arrivalFactor times ContactTimeout is how long a run is kept whose instance nobody has
// reported to this hub yet, or whose agent has left: the instance goes on working, and the
// agent may only be restarting. An agent that knows another hub looks once a minute for one
// that has restarted.
const arrivalFactor = 6

// SharesGPU reports whether other instances use the same GPU.
func (r *Reports) SharesGPU(i fleet.Instance) bool {
	said := r.gpus()
	name := GPUName(said, i)
	return name != "" && slices.ContainsFunc(r.fleet.Instances(), func(other fleet.Instance) bool {
		return other.Name != i.Name && GPUName(said, other) == name && !Vanished(r.fleet, other)
	})
}

// vanishedAfter is how long something may still run at an instance whose agent is gone.
const vanishedAfter = 10 * time.Minute

// Vanished reports whether an instance uses no GPU any more, though it is still listed: its agent is
// gone, or has started again without it, and nothing ran there. The machine may have another agent now.
func Vanished(f *fleet.Registry, i fleet.Instance) bool {
	return i.Agent != "" && i.State == fleet.Offline && (i.Left || !f.Present(i.Agent)) &&
		(i.Running == "" || time.Since(i.LastSeen) > vanishedAfter)
}

// GPUName names the GPU of an instance, "" if unknown. A name that an agent uses holds only among
// that agent's instances, except for the driver's own id, which no other machine can guess. said
// are the names that the operator gives in the hub's settings.
func GPUName(said map[string]string, i fleet.Instance) string {
	name := cmp.Or(said[i.Name], i.Report.Device)
	if name == "" || strings.HasPrefix(name, "GPU-") {
		return name
	}
	return i.Agent + "/" + name
}

// Memory returns how much GPU memory an instance can use, in bytes; 0 if unknown.
func (r *Reports) Memory(conn *Link) int64 {
	i, _ := r.fleet.Instance(conn.Name)
	return i.Report.Memory()
}

// IsIdle reports whether an instance can take a job now.
func (r *Reports) IsIdle(conn *Link) bool {
	i, known := r.fleet.Instance(conn.Name)
	if !known || !conn.Usable(i) {
		return false
	}
	_, _, ok := conn.Idle()
	return ok
}
