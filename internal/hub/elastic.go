package hub

import (
	"context"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/classes"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/roster"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// elasticLine bounds the waiting jobs that are looked at.
	elasticLine = 256
	// fixedPatience is how much time the servers that stay have for waiting jobs before machines
	// are started for these.
	fixedPatience = 2 * time.Minute
)

// Scale returns how the classes of machines are doing that come and go by need. The hub must have
// started. The error is one of Redis.
func (h *Hub) Scale(ctx context.Context) ([]scale.Status, error) { return h.scaler.Status(ctx) }

func (h *Hub) openScaler() {
	h.scaler = scale.New(scale.Options{
		DB: h.db, Hub: h.self, Log: h.log, Classes: func() []scale.Class { return h.Settings().Scale },
		Fleet: &elastic{queue: h.queue, fleet: h.fleet, dispatch: h.dispatch, inventory: h.inventory, roster: h.roster, stops: h.stops, settings: h.Settings},
	})
}

// elastic is what package scale sees of the fleet.
type elastic struct {
	queue     *queue.Queue
	fleet     *fleet.Registry
	dispatch  *dispatch.Dispatcher
	inventory *classes.Inventory
	roster    *roster.Roster
	stops     *stops
	settings  func() *config.Settings
}

// Drain implements [scale.Fleet].
func (e *elastic) Drain(ctx context.Context, instance string, on bool) error {
	if err := e.queue.Scale(ctx, queue.StopInstance(instance), on); err != nil {
		return err
	}
	return e.stops.look(ctx)
}

// Look implements [scale.Fleet].
func (e *elastic) Look(ctx context.Context, classes []scale.Class) (map[string]scale.View, error) {
	if err := e.stops.look(ctx); err != nil {
		return nil, err
	}
	all := e.instances()
	w, err := e.queue.Window(ctx, queue.Wanted{}, 0, elasticLine)
	if err != nil {
		return nil, err
	}
	// After the stops: an instance that is stopped, and that no job names now, gets none.
	at, err := e.occupied(ctx)
	if err != nil {
		return nil, err
	}
	demand, err := e.demand(ctx, classes, w.Jobs)
	if err != nil {
		return nil, err
	}
	views := map[string]scale.View{}
	for n, class := range classes {
		v := scale.View{Waiting: demand.waiting[n]}
		for _, i := range all {
			if class.Has(i.Name) {
				i.Busy = i.Busy || at[i.Name]
				i.Left, i.Needed = max(demand.Free(i.Name), 0), demand.sets[n][schedule.SetOf(e.dispatch.Instances.Activity(i.Name).Models)]
				v.Instances = append(v.Instances, i)
			}
		}
		views[class.Name] = v
	}
	return views, nil
}

// instances lists the present instances, those of other hubs included.
func (e *elastic) instances() (list []scale.Instance) {
	known := map[string]bool{}
	for _, i := range e.fleet.Instances() {
		if i.State == fleet.Offline {
			continue
		}
		known[i.Name] = true
		stopped := e.stops.Has(queue.StopInstance(i.Name))
		list = append(list, scale.Instance{
			Name: i.Name, Moved: i.Report.Since, Stopped: stopped,
			Works: i.State == fleet.Idle || i.State == fleet.Busy || i.State == fleet.Draining && i.Drained && !i.Report.Draining,
			Busy:  i.State == fleet.Busy || i.State == fleet.Foreign || i.Report.Queue > 0 || i.Running != "",
		})
	}
	for name := range e.roster.Elsewhere() {
		if !known[name] {
			list = append(list, scale.Instance{Name: name, Works: true, Stopped: e.stops.Has(queue.StopInstance(name))})
		}
	}
	return list
}

// occupied are the instances that have a job, or files of one that are still to be fetched.
func (e *elastic) occupied(ctx context.Context) (map[string]bool, error) {
	jobs, err := e.queue.Listed(ctx, "")
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

// elasticDemand is the work that waits for each class, by its index.
type elasticDemand struct {
	*dispatch.Outlook
	waiting [][]time.Duration
	// sets are the sets of models that the jobs need.
	sets []map[string]bool
}

// demand gives each waiting job to a server that stays, as long as that has time, else to the first
// class that can run it.
func (e *elastic) demand(ctx context.Context, classes []scale.Class, jobs []job.Job) (elasticDemand, error) {
	names := make([]string, len(jobs))
	for n, j := range jobs {
		names[n] = j.Class
	}
	slices.Sort(names)
	needs, err := e.queue.Requirements(ctx, slices.Compact(names))
	d := elasticDemand{Outlook: e.dispatch.Forecasts.From(ctx, jobs...), waiting: make([][]time.Duration, len(classes)), sets: make([]map[string]bool, len(classes))}
	if err != nil {
		return d, err
	}
	can := e.offers(classes, needs)
	fixed := slices.DeleteFunc(slices.Clone(d.Spots), func(s schedule.Spot) bool {
		return slices.ContainsFunc(classes, func(c scale.Class) bool { return c.Has(s.Name) })
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
func (d elasticDemand) fits(fixed []schedule.Spot, j job.Job) bool {
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
func (e *elastic) offers(classes []scale.Class, needs map[string][]byte) []offer {
	infos, decoded := e.inventory.Infos(), map[string]catalog.Requirements{}
	for class, text := range needs {
		if r, err := catalog.DecodeRequirements(text); err == nil {
			decoded[class] = r
		}
	}
	list := make([]offer, len(classes))
	for n, class := range classes {
		o := offer{classes: map[string][]string{}, unknown: true, names: class.Instances, reserved: e.settings().Reserved}
		for name, info := range infos {
			if !class.Has(name) {
				continue
			}
			o.unknown = false
			info = e.dispatch.Access.WithSecrets(map[string]*catalog.Info{name: info})[0]
			if i, known := e.fleet.Instance(name); known {
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
