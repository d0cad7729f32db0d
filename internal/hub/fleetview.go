package hub

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// AllInstances is the fleet for its operator: with the addresses of all
// instances and the ids of all prompts.
func (h *Hub) AllInstances() []fleet.Instance { return h.fleet.Instances() }

// Instances is the fleet as a viewer may see it: prompts of others make an
// instance busy and are not named. While Redis is away no running prompt is.
func (h *Hub) Instances(ctx context.Context, v Viewer) []fleet.Instance {
	instances := h.fleet.Instances()
	running := h.runningOf(ctx, v, instances)
	all := h.SeesAll(v)
	for n := range instances {
		i := &instances[n]
		i.Running = running[i.Name]
		if !all {
			i.URL, i.Reason = "", ""
		}
	}
	return instances
}

// runningOf are the viewer's own prompts by the instance that runs them.
func (h *Hub) runningOf(ctx context.Context, v Viewer, instances []fleet.Instance) map[string]string {
	var keys []string
	for _, i := range instances {
		if i.Report.Job != "" {
			keys = append(keys, i.Report.Job)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	jobs, err := h.queue.GetAll(ctx, keys)
	if err != nil {
		h.log().Debug("cannot tell whose prompts run", "error", err)
	}
	running := map[string]string{}
	for _, j := range jobs {
		if j.Tenant == v.Tenant && j.State.Live() {
			running[j.Run.Instance] = j.ID
		}
	}
	return running
}

// Drain lets an instance finish its run and gives it no other. It reports
// whether the instance is known.
func (h *Hub) Drain(name string) bool { return h.fleet.SetDraining(name, true) }

// Resume undoes Drain.
func (h *Hub) Resume(name string) bool {
	ok := h.fleet.SetDraining(name, false)
	if h.started.Load() {
		h.dispatch.Wake()
	}
	return ok
}

// Stats are the fleet in a few numbers.
type Stats struct {
	// Waiting and Running are jobs, Sockets open sockets: everybody's, or the
	// viewer's own where others are none of its business.
	Waiting, Running, Sockets int
	// Instances has a count for each state that there is.
	Instances map[fleet.State]int
}

// Stats counts what a viewer may know of. The error is one of Redis.
func (h *Hub) Stats(ctx context.Context, v Viewer) (Stats, error) {
	var s Stats
	var live int
	var err error
	if h.SeesAll(v) {
		live, s.Waiting, err = h.queue.CountAll(ctx)
		s.Sockets = h.streams.Sockets()
	} else {
		live, s.Waiting, err = h.queue.CountOf(ctx, v.Tenant)
		s.Sockets = h.streams.SocketsOf(v.Tenant)
	}
	s.Running = live - s.Waiting
	s.Instances = map[fleet.State]int{}
	for _, state := range fleet.States() {
		s.Instances[state] = 0
	}
	for _, i := range h.fleet.Instances() {
		s.Instances[i.State]++
	}
	return s, err
}
