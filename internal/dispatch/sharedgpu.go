package dispatch

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/learned"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// sharing knows which instances use the same GPU, and how much of its memory is taken.
type sharing struct {
	fleet     *fleet.Registry
	settings  func() Settings
	instances *Instances
	durations *learned.Durations
}

// gpus returns the GPUs that several instances use, by name.
func (s *sharing) gpus() map[string]*schedule.GPU {
	said := s.settings().GPUs
	users := map[string][]fleet.Instance{}
	for _, i := range s.fleet.Instances() {
		if name := instance.GPUName(said, i); name != "" && !instance.Vanished(s.fleet, i) {
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
				need = s.durations.Need(shape, kind)
				needs[shape] = need
			}
			return need
		}
		others := int64(0)
		for _, i := range instances {
			others = max(others, i.Report.OthersMemory)
			g.Total = max(g.Total, i.Report.VRAMTotal)
			if shape, runs := s.shapeAt(i); runs {
				g.Take(job.Job{Shape: shape})
			}
		}
		g.Total = max(g.Total-others, 0)
		shared[name] = g
	}
	return shared
}

// shapeAt returns whether an instance is running something, and the shape of that, "" if unknown.
func (s *sharing) shapeAt(i fleet.Instance) (shape string, runs bool) {
	conn := s.instances.Get(i.Name)
	if conn != nil {
		if r := conn.Running(); r != nil {
			return r.Job().Shape, true
		}
	}
	if i.State == fleet.Offline || !i.Report.Up || i.Report.Queue == 0 {
		return "", false
	}
	if conn != nil {
		shape, _, _ = conn.Elsewhere(i)
	}
	return shape, true
}

// fill fills in the GPUs that idle instances share with others. names are those of their GPUs,
// in the same order.
func (s *sharing) fill(idle []schedule.Idle, names []string) {
	if !slices.ContainsFunc(names, func(name string) bool { return name != "" }) {
		return
	}
	shared := s.gpus()
	for n, name := range names {
		idle[n].GPU = shared[name]
	}
}
