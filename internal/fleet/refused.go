package fleet

import "time"

const (
	// refusedFor is how long it shows that an agent is refused. One that is
	// still there is refused again every few seconds.
	refusedFor = time.Minute
	// maxRefused bounds those that are remembered: anybody in the gossip can
	// think of names.
	maxRefused = 256
)

// refusal says why an agent is not listened to.
type refusal struct {
	reason string
	at     time.Time
}

// Refuse notes that reports in the name of an agent are refused, and why. It
// shows where the agent's instances are offline, or in an entry of the agent's
// name while none is known; an agent that is well is not touched by it.
func (r *Registry) Refuse(agent, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for name, old := range r.refused {
		if now.Sub(old.at) > refusedFor {
			delete(r.refused, name)
		}
	}
	before, known := r.refused[agent]
	if !known && len(r.refused) >= maxRefused {
		return
	}
	r.refused[agent] = refusal{reason, now}
	if before.reason != reason {
		r.notify()
	}
}

// Present reports whether an agent is there: it has neither left nor gone
// silent.
func (r *Registry) Present(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.absent(agent, time.Now())
}

// snapshot is a record as others see it.
func (r *Registry) snapshot(rec *record, now time.Time) Instance {
	i := rec.snapshot(now)
	if why, ok := r.refused[rec.agent]; ok && rec.agent != "" && i.State == Offline && now.Sub(why.at) <= refusedFor {
		i.Reason = why.reason
	}
	return i
}

// strangers are entries for refused agents of which nothing else is known.
func (r *Registry) strangers(now time.Time) []Instance {
	var list []Instance
	for name, why := range r.refused {
		if now.Sub(why.at) > refusedFor || r.instances[name] != nil || r.hasInstances(name) {
			continue
		}
		list = append(list, Instance{Name: name, Agent: name, Kind: KindComfyUI, State: Offline, Reason: why.reason, LastSeen: why.at})
	}
	return list
}

func (r *Registry) hasInstances(agent string) bool {
	for _, rec := range r.instances {
		if rec.agent == agent {
			return true
		}
	}
	return false
}

// ForgetAgent removes an agent that is not there, with its instances. It
// reports whether there was anything to remove.
func (r *Registry) ForgetAgent(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.absent(agent, time.Now()) {
		return false
	}
	_, known := r.agents[agent]
	delete(r.agents, agent)
	delete(r.refused, agent)
	for name, rec := range r.instances {
		if rec.agent == agent && !rec.static {
			delete(r.instances, name)
			known = true
		}
	}
	r.notify()
	return known
}
