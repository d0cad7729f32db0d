// Package demand tells package scale what a hub sees of the fleet: which machines there are, and how
// much work waits for machines of each class.
package demand

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// line bounds the waiting jobs that are looked at.
	line = 256
	// fixedPatience is how much time the servers that stay have for waiting jobs before machines
	// are started for these.
	fixedPatience = 2 * time.Minute
)

// Fleet is what package scale sees of the fleet.
type Fleet struct {
	Queue    *queue.Queue
	Fleet    *fleet.Registry
	Dispatch *dispatch.Dispatcher
	// Infos describe what each instance can run, and Elsewhere are the instances of other hubs.
	Infos     func() map[string]*catalog.Info
	Elsewhere func() map[string]*catalog.Info
	// Stops are what is paused. Look reads them anew.
	Stops interface {
		Look(ctx context.Context) error
		Has(stop queue.Stop) bool
	}
	Reserved func() schedule.Reservations
}

// Drain implements [scale.Fleet].
func (e *Fleet) Drain(ctx context.Context, instance string, on bool) error {
	if err := e.Queue.Scale(ctx, queue.StopInstance(instance), on); err != nil {
		return err
	}
	return e.Stops.Look(ctx)
}

// Look implements [scale.Fleet].
func (e *Fleet) Look(ctx context.Context, classes []scale.Class) (map[string]scale.View, error) {
	if err := e.Stops.Look(ctx); err != nil {
		return nil, err
	}
	all := e.instances()
	w, err := e.Queue.Window(ctx, queue.Wanted{}, 0, line)
	if err != nil {
		return nil, err
	}
	// After the stops: an instance that is stopped, and that no job names now, gets none.
	at, err := e.occupied(ctx)
	if err != nil {
		return nil, err
	}
	need, err := e.demand(ctx, classes, w.Jobs)
	if err != nil {
		return nil, err
	}
	views := map[string]scale.View{}
	for n, class := range classes {
		v := scale.View{Waiting: need.waiting[n]}
		for _, i := range all {
			if isMachine(class, i.Name) {
				i.Busy = i.Busy || at[i.Name]
				i.Left, i.Needed = max(need.Free(i.Name), 0), need.sets[n][schedule.SetOf(e.Dispatch.Instances.Activity(i.Name).Models)]
				v.Instances = append(v.Instances, i)
			}
		}
		views[class.Name] = v
	}
	return views, nil
}

// isMachine reports whether an instance is a machine of a class: slots of endpoints are none, even if
// the class is of all names.
func isMachine(c scale.Class, instance string) bool {
	return !strings.HasPrefix(instance, fleet.OverflowScheme+":") && c.Has(instance)
}

// instances lists the present instances, those of other hubs included.
func (e *Fleet) instances() (list []scale.Instance) {
	known := map[string]bool{}
	for _, i := range e.Fleet.Instances() {
		if i.State == fleet.Offline {
			continue
		}
		known[i.Name] = true
		stopped := e.Stops.Has(queue.StopInstance(i.Name))
		list = append(list, scale.Instance{
			Name: i.Name, Moved: i.Report.Since, Stopped: stopped,
			Works: i.State == fleet.Idle || i.State == fleet.Busy || i.State == fleet.Draining && i.Drained && !i.Report.Draining,
			Busy:  i.State == fleet.Busy || i.State == fleet.Foreign || i.Report.Queue > 0 || i.Running != "",
		})
	}
	for name := range e.Elsewhere() {
		if !known[name] {
			list = append(list, scale.Instance{Name: name, Works: true, Stopped: e.Stops.Has(queue.StopInstance(name))})
		}
	}
	return list
}

// occupied are the instances that have a job, or files of one that are still to be fetched.
func (e *Fleet) occupied(ctx context.Context) (map[string]bool, error) {
	jobs, err := e.Queue.Listed(ctx, "")
	if err != nil {
		return nil, err
	}
	at := map[string]bool{}
	for _, j := range jobs {
		if j.State != job.Queued {
			at[j.Run.Instance] = true
		}
	}
	return at, nil
}

// demand is the work that waits for each class, by its index.
type demand struct {
	*dispatch.Outlook
	waiting [][]time.Duration
	// sets are the sets of models that the jobs need.
	sets []map[string]bool
}

// demand gives each waiting job to a server that stays, as long as that has time, else to the first
// class that can run it.
func (e *Fleet) demand(ctx context.Context, classes []scale.Class, jobs []job.Job) (demand, error) {
	names := make([]string, len(jobs))
	for n, j := range jobs {
		names[n] = j.Class
	}
	slices.Sort(names)
	needs, err := e.Queue.Requirements(ctx, slices.Compact(names))
	d := demand{Outlook: e.Dispatch.Forecasts.From(ctx, jobs...), waiting: make([][]time.Duration, len(classes)), sets: make([]map[string]bool, len(classes))}
	if err != nil {
		return d, err
	}
	can := e.offers(classes, needs)
	fixed := slices.DeleteFunc(slices.Clone(d.Spots), func(s schedule.Spot) bool {
		return slices.ContainsFunc(classes, func(c scale.Class) bool { return isMachine(c, s.Name) })
	})
	for _, j := range jobs {
		if d.fits(fixed, j) {
			continue
		}
		for n := range classes {
			if !can[n].takes(j) {
				continue
			}
			d.waiting[n] = append(d.waiting[n], d.Estimate(j.Shape, can[n].gpu).Ran)
			if d.sets[n] == nil {
				d.sets[n] = map[string]bool{}
			}
			if models := d.Models(j.Class); len(models) > 0 {
				d.sets[n][schedule.SetOf(models)] = true
			}
			break
		}
	}
	return d, nil
}

// fits gives a job to the first of some servers that can run it and has time.
func (d demand) fits(fixed []schedule.Spot, j job.Job) bool {
	for n := range fixed {
		if s := &fixed[n]; s.Can(j) && s.Free < fixedPatience {
			s.Free += d.Estimate(j.Shape, s.Kind).Ran
			return true
		}
	}
	return false
}

// offer is what the machines of a class can run, as far as any has been there within a day.
type offer struct {
	gpu string
	// classes are the job classes that one of them can run, with the names of those that can.
	classes map[string][]string
	// unknown says that none has been there: it is taken to run everything. Then names has what
	// their names look like.
	unknown  bool
	names    []string
	reserved schedule.Reservations
}

// takes reports whether a machine of the class would run a job.
func (o offer) takes(j job.Job) bool {
	names := o.classes[j.Class]
	if o.unknown {
		names = o.names
	}
	return slices.ContainsFunc(names, func(name string) bool { return schedule.MayUse(o.reserved.For(name), j.Tenant) })
}

// offers returns what each class can run of the given job classes.
func (e *Fleet) offers(classes []scale.Class, needs map[string][]byte) []offer {
	infos, decoded := e.Infos(), map[string]catalog.Requirements{}
	for class, text := range needs {
		if r, err := catalog.DecodeRequirements(text); err == nil {
			decoded[class] = r
		}
	}
	list := make([]offer, len(classes))
	for n, class := range classes {
		o := offer{classes: map[string][]string{}, unknown: true, names: class.Instances, reserved: e.Reserved()}
		for name, info := range infos {
			if !isMachine(class, name) {
				continue
			}
			o.unknown = false
			info = e.Dispatch.Access.WithSecrets(map[string]*catalog.Info{name: info})[0]
			if i, known := e.Fleet.Instance(name); known {
				o.gpu = schedule.GPUType(i.Report.GPU)
			}
			for job, r := range decoded {
				if len(info.Satisfies(r)) == 0 {
					o.classes[job] = append(o.classes[job], name)
				}
			}
		}
		list[n] = o
	}
	return list
}
