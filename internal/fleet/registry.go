package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

var (
	// ErrStale means that a report is older than what is known. This is normal:
	// reports overtake each other on the network.
	ErrStale = errors.New("stale report")
	// ErrNameTaken means that two agents, or an agent and a static instance, use
	// one name. The first one keeps it while it lives.
	ErrNameTaken = errors.New("name taken")
	// ErrMoved means that a report has another address for an instance than earlier
	// reports. An agent that moves restarts.
	ErrMoved = errors.New("an instance has moved while its agent ran")
	// ErrTooMany means that the fleet is full.
	ErrTooMany = errors.New("too many agents or instances")
	// ErrUnknown means that there is no instance of a name.
	ErrUnknown = errors.New("no instance of that name is known")
	// ErrPresent means that an instance that is to be forgotten would come back.
	ErrPresent = errors.New("the instance belongs to the fleet: take it out of its agent's --comfyui or of the Caddyfile first, or stop the agent")
	// ErrNoRestart means that nobody can restart an instance.
	ErrNoRestart = errors.New("nobody can restart the instance: its agent needs --restart-command")
)

const (
	// takeover is how long the owner of a name must be silent before another agent
	// of that name is believed. Reports come every 3 s.
	takeover = 6 * time.Second
	// forgetAfter is how long an instance that left on purpose is listed, see keptFor.
	forgetAfter = 24 * time.Hour
	// maxAgents and maxFleet bound the agents and instances that are known;
	// maxMoves bounds the names that one agent may use from its start.
	maxAgents = 4096
	maxFleet  = 16384
	maxMoves  = 1024
)

// Registry is what a hub knows of its instances. It is safe for concurrent use.
//
// Many methods: one method for each thing that is reported or asked about an
// instance; all of them keep the same two tables under one lock.
type Registry struct {
	mu        sync.Mutex
	agents    map[string]*agent
	instances map[string]*record
	// refused holds the agents whose reports are refused, by name.
	refused map[string]refusal
	// of holds the instances of each agent: a report costs what it says, not what the
	// fleet has.
	of map[string]map[string]*record
	// sorted holds all instances by name. It is nil when one has come or gone, and then
	// made again for the next listing.
	sorted      []*record
	subscribers map[*Changes]struct{}
	cleaned     time.Time // when old entries were last dropped
}

// agent is the owner of a name.
type agent struct {
	boot  int64
	seq   uint64
	key   string // that signs its reports
	host  string // where it serves
	heard time.Time
	left  bool
	// urls are the addresses of its instances since it started.
	urls map[string]string
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		agents: map[string]*agent{}, instances: map[string]*record{}, refused: map[string]refusal{},
		of: map[string]map[string]*record{}, subscribers: map[*Changes]struct{}{},
	}
}

// Apply applies an agent's report. It returns [ErrStale] for a report that comes
// too late, [ErrMoved] for one that changes an address, [ErrTooMany] for one that
// does not fit, and [ErrNameTaken] if the name of the agent or of an instance
// belongs to another agent; the agent's other instances are applied all the same.
func (r *Registry) Apply(report Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if err := r.admit(report, now); err != nil {
		return err
	}
	var taken []error
	named := make(map[string]bool, len(report.Instances))
	var changed []string
	for _, i := range report.Instances {
		rec := r.instances[i.Name]
		switch {
		case rec == nil:
			if len(r.instances) >= maxFleet {
				taken = append(taken, fmt.Errorf("%w: instance %q of agent %q", ErrTooMany, i.Name, report.Agent))
				continue
			}
			rec = r.put(i.Name, &record{agent: report.Agent})
		case rec.agent != report.Agent && !r.free(rec, now):
			taken = append(taken, fmt.Errorf("%w: instance %q of agent %q", ErrNameTaken, i.Name, report.Agent))
			continue
		}
		named[i.Name] = true
		if rec.agent != report.Agent {
			r.drop(i.Name)
			rec.agent = report.Agent
			r.put(i.Name, rec)
		}
		other := rec.key != report.Sender.Key
		rec.key, rec.namedBy = report.Sender.Key, report.Boot
		if rec.take(i, now) || other {
			changed = append(changed, i.Name)
		}
	}
	for name, rec := range r.of[report.Agent] {
		if !named[name] && r.unnamed(name, rec, report) {
			changed = append(changed, name)
		}
	}
	if _, was := r.refused[report.Agent]; was {
		delete(r.refused, report.Agent)
		changed = append(changed, report.Agent)
	}
	if now.Sub(r.cleaned) > time.Minute {
		r.forgetOld(now)
	}
	r.notify(changed...)
	return errors.Join(taken...)
}

// take stores an observation and reports whether anything but its time has changed.
func (r *record) take(report InstanceReport, now time.Time) bool {
	before, was := r.state(now)
	changed := r.report != report || r.orphaned
	if report.Up && (r.report.Boot != report.Boot || !r.broken && r.report.Queue > 0 && report.Queue == 0) {
		// The process restarted or got rid of what it hung on: a dead worker keeps
		// its prompt for ever.
		r.sick, r.broken = "", false
	}
	r.report, r.seen, r.orphaned = report, now, false
	after, is := r.state(now)
	return changed || before != after || was != is
}

// AddStatic adds an instance without an agent, under its [StaticName]. Adding it
// again changes nothing.
func (r *Registry) AddStatic(address string) (name string, err error) {
	return r.addStatic(address, KindComfyUI)
}

// AddA1111 is AddStatic for a server of A1111's API.
func (r *Registry) AddA1111(address string) (name string, err error) {
	return r.addStatic(address, KindA1111)
}

func (r *Registry) addStatic(address, kind string) (name string, err error) {
	name, err = StaticName(address)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.instances[name]; rec != nil {
		if !rec.static {
			return "", fmt.Errorf("%w: %q is an instance of agent %q", ErrNameTaken, name, rec.agent)
		}
		rec.report.URL, rec.report.Kind = address, kind
		return name, nil
	}
	r.put(name, &record{static: true, report: InstanceReport{Name: name, URL: address, Direct: true, Kind: kind}})
	r.notify(name)
	return name, nil
}

// AddWorker adds a worker that fetches its jobs from this hub, as an instance without an
// agent. name is a [WorkerName]. Adding it again changes nothing.
func (r *Registry) AddWorker(name string) { r.addOwn(name, KindWorker) }

// AddOverflow is AddWorker for a slot of a serverless endpoint, by its [OverflowName].
func (r *Registry) AddOverflow(name string) { r.addOwn(name, KindOverflow) }

func (r *Registry) addOwn(name, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[name] == nil {
		r.put(name, &record{static: true, report: InstanceReport{Name: name, URL: name, Direct: true, Kind: kind}})
		r.notify(name)
	}
}

// RemoveStatic removes a static instance from the fleet.
func (r *Registry) RemoveStatic(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.instances[name]; rec != nil && rec.static {
		r.drop(name)
		r.notify(name)
	}
}

// Observe stores what the hub itself has observed of a static instance, or of one
// whose agent has left. Reports of a present agent take precedence.
func (r *Registry) Observe(report InstanceReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.instances[report.Name]
	now := time.Now()
	if rec == nil || !rec.static && !r.absent(rec.agent, now) {
		return
	}
	if rec.take(report, now) {
		r.notify(report.Name)
	}
}

// SetRunning records that the hub has sent a job to an instance; id is the client's
// prompt_id, empty when the run has ended.
func (r *Registry) SetRunning(name, id string) {
	r.update(name, func(rec *record) bool {
		changed := rec.running != id
		rec.running = id
		return changed
	})
}

// SetSick records that an instance answers but does not work, and why. An empty
// reason clears that; so does a restart of the instance.
func (r *Registry) SetSick(name, reason string) {
	r.update(name, func(rec *record) bool {
		changed := rec.sick != reason
		rec.sick, rec.broken = reason, rec.broken && reason != ""
		return changed
	})
}

// SetBroken is SetSick for an instance that only a restart of its process cures.
func (r *Registry) SetBroken(name, reason string) {
	r.update(name, func(rec *record) bool {
		changed := rec.sick != reason || !rec.broken
		rec.sick, rec.broken = reason, true
		return changed
	})
}

// SetAside records that runs come to nothing at an instance, and what shows that. An empty
// reason clears it.
func (r *Registry) SetAside(name, reason string) {
	r.update(name, func(rec *record) bool {
		changed := rec.aside != reason
		rec.aside = reason
		return changed
	})
}

// SetSilent records whether an instance gives the hub no sign of life. What runs there may go
// on, so that only an idle one counts as offline then.
func (r *Registry) SetSilent(name string, silent bool) {
	r.update(name, func(rec *record) bool {
		changed := rec.silent != silent
		rec.silent = silent
		return changed
	})
}

// SetDraining makes an instance take no further job, or take jobs again. It reports
// whether the instance is known.
func (r *Registry) SetDraining(name string, draining bool) bool {
	return r.update(name, func(rec *record) bool {
		changed := rec.draining != draining
		rec.draining = draining
		return changed
	})
}

func (r *Registry) update(name string, change func(*record) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.instances[name]
	if rec == nil {
		return false
	}
	if change(rec) {
		r.notify(name)
	}
	return true
}

// put adds an instance.
func (r *Registry) put(name string, rec *record) *record {
	r.instances[name], r.sorted = rec, nil
	if !rec.static {
		if r.of[rec.agent] == nil {
			r.of[rec.agent] = map[string]*record{}
		}
		r.of[rec.agent][name] = rec
	}
	return rec
}

// drop removes an instance.
func (r *Registry) drop(name string) {
	rec := r.instances[name]
	delete(r.instances, name)
	r.sorted = nil
	if its := r.of[rec.agent]; its != nil {
		delete(its, name)
		if len(its) == 0 {
			delete(r.of, rec.agent)
		}
	}
}

// Instances returns a snapshot, sorted by name. It costs as much as there are
// instances: it is for listings, and nothing that happens often may call it.
func (r *Registry) Instances() []Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sorted == nil {
		r.sorted = slices.SortedFunc(maps.Values(r.instances), func(a, b *record) int { return cmp.Compare(a.report.Name, b.report.Name) })
	}
	now := time.Now()
	list := make([]Instance, 0, len(r.sorted))
	for _, rec := range r.sorted {
		list = append(list, r.snapshot(rec, now))
	}
	if refused := r.refusedAgents(now); len(refused) > 0 {
		list = append(list, refused...)
		slices.SortFunc(list, func(a, b Instance) int { return cmp.Compare(a.Name, b.Name) })
	}
	return list
}

// Len returns how many instances are known.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.instances)
}

// Instance returns one instance and whether it is known.
func (r *Registry) Instance(name string) (Instance, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.instances[name]
	if rec == nil {
		return Instance{}, false
	}
	return r.snapshot(rec, time.Now()), true
}
