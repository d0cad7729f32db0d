package view

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// Instances returns the fleet as a viewer may see it: other people's prompts make an instance busy
// but are not named. While Redis is away, no running prompt is.
func (s *Insight) Instances(ctx context.Context, v Viewer) []fleet.Instance {
	instances := s.Fleet.Instances()
	running := s.runningOf(ctx, v, instances)
	all := s.SeesAll(v)
	if all {
		instances = s.Settings().WithReserved(instances)
	}
	for n := range instances {
		i := &instances[n]
		i.Running = running[i.Name]
		if !all {
			i.URL, i.Reason = "", ""
			i.Report.OthersMemory, i.Report.OthersUse = 0, 0
			i.Report.Restarts, i.Report.RestartAt, i.Report.RestartError = 0, 0, ""
			i.Report.DiskFree, i.Report.DiskSize = 0, 0
		}
	}
	return instances
}

// runningOf returns the viewer's own prompts by the instance that runs them.
func (s *Insight) runningOf(ctx context.Context, v Viewer, instances []fleet.Instance) map[string]string {
	var keys []string
	for _, i := range instances {
		if i.Report.Job != "" {
			keys = append(keys, i.Report.Job)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	jobs, err := s.Queue.GetAll(ctx, keys)
	if err != nil {
		s.Log().Debug("cannot tell whose prompts run", "error", err)
	}
	running := map[string]string{}
	for _, j := range jobs {
		if j.Tenant == v.Tenant && j.State.Live() {
			running[j.Run.Instance] = j.ID
		}
	}
	return running
}

// Stats is the fleet in a few numbers.
type Stats struct {
	// Waiting and Running count jobs, Sockets open sockets: everybody's, or the viewer's own if
	// others are none of its business.
	Waiting, Running, Sockets int
	// Ended counts the jobs that have ended since the queue began, on all hubs; -1 if others are
	// none of the viewer's business.
	Ended int64
	// Paused means that the operator has paused the whole queue.
	Paused bool
	// WebUI is where ComfyUI's page comes from.
	WebUI origin.WebUISource
	// Strangers says why Redis and the storage do not belong together, so that nothing is deleted;
	// empty if they do, or if that is none of the viewer's business.
	Strangers string
	// Switched and Saved count runs of the last day that had to load models, and those that did not
	// because somebody looked for an instance that has them; zeros for who may not know.
	Switched, Saved int64
	// Instances has a count for each state that occurs.
	Instances map[fleet.State]int
}

// Stats counts what a viewer may know about.
func (s *Insight) Stats(ctx context.Context, v Viewer) (Stats, error) {
	out := Stats{Ended: -1, Paused: s.Stops.Has(queue.StopAll)}
	var live int
	var err error
	if s.SeesAll(v) {
		live, out.Waiting, _, err = s.Queue.CountAll(ctx)
		out.Sockets = s.Streams.Sockets.Count()
		out.WebUI, out.Strangers = s.Pages.Where(), s.strangers()
		if err == nil {
			out.Ended, err = s.Queue.Ends(ctx)
		}
		day, _ := s.Trends.Day(ctx) // without it, the rest is still true
		for _, b := range day {
			out.Switched, out.Saved = out.Switched+b.Switched, out.Saved+b.Saved
		}
	} else {
		live, out.Waiting, err = s.Queue.CountOf(ctx, v.Tenant)
		out.Sockets = s.Streams.Sockets.CountOf(v.Tenant)
	}
	out.Running = live - out.Waiting
	out.Instances = map[fleet.State]int{}
	for _, state := range fleet.States() {
		out.Instances[state] = 0
	}
	for _, i := range s.Fleet.Instances() {
		out.Instances[i.State]++
	}
	return out, err
}

// strangers says why Redis and the storage do not belong together, "" if they do.
func (s *Insight) strangers() string {
	if err := s.Bond.Err(); err != nil {
		return err.Error()
	}
	return ""
}
