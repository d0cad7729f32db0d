package dispatch

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// room is what an outlook knows of the GPUs that several instances use.
type room struct {
	shared map[string]*schedule.GPU
	// users are the places of the instances of a GPU among the outlook's, by its name.
	users map[string][]int
}

// from returns when a job could begin on an instance: once that is free, and its GPU has
// room beside what the others there run by then.
func (o *Outlook) from(s *busySpot, j job.Job) time.Duration {
	g := o.room.shared[s.device]
	if g == nil {
		return s.free
	}
	moments := []time.Duration{s.free}
	for _, n := range o.room.users[s.device] {
		if free := o.spots[n].free; free > s.free {
			moments = append(moments, free)
		}
	}
	slices.Sort(moments)
	for _, at := range moments {
		then := schedule.GPU{Total: g.Total, Need: g.Need}
		for _, n := range o.room.users[s.device] {
			if other := &o.spots[n]; other.Name != s.Name && other.free > at {
				then.Take(job.Job{Shape: other.shape})
			}
		}
		if then.Fits(j) {
			return at
		}
	}
	return moments[len(moments)-1] // not reached: the others have ended by then
}
