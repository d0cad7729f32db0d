package fleet

import "time"

const (
	// refusedFor is how long it is shown that an agent is refused. An agent that is
	// still there is refused again every few seconds.
	refusedFor = time.Minute
	// maxRefused bounds the refused agents that are remembered: anybody in the
	// gossip can make up names.
	maxRefused = 256
)

// refusal says why an agent's reports are refused.
type refusal struct {
	reason string
	at     time.Time
}

// Refuse records that reports in the name of an agent are refused, and why. This is
// shown on the agent's instances if they are offline, or in an entry of the agent's
// name if the agent is unknown; it does not affect an agent that works.
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
		r.notify(agent)
	}
}

// Present reports whether an agent is there: it has neither left nor gone silent.
func (r *Registry) Present(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.absent(agent, time.Now())
}

// snapshot returns a record as others see it.
func (r *Registry) snapshot(rec *record, now time.Time) Instance {
	i := rec.snapshot(now)
	if why, ok := r.refused[rec.agent]; ok && rec.agent != "" && i.State == Offline && now.Sub(why.at) <= refusedFor {
		i.Reason = why.reason
	}
	return i
}

// refusedAgents returns entries for refused agents of which nothing else is known.
func (r *Registry) refusedAgents(now time.Time) []Instance {
	var list []Instance
	for name, why := range r.refused {
		if now.Sub(why.at) > refusedFor || r.instances[name] != nil || len(r.of[name]) > 0 {
			continue
		}
		list = append(list, Instance{Name: name, Agent: name, Kind: KindComfyUI, State: Offline, Reason: why.reason, LastSeen: why.at})
	}
	return list
}

// ForgetAgent removes an absent agent and its instances. It reports whether there
// was anything to remove.
func (r *Registry) ForgetAgent(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.absent(agent, time.Now()) {
		return false
	}
	_, known := r.agents[agent]
	delete(r.agents, agent)
	delete(r.refused, agent)
	for name := range r.of[agent] {
		r.drop(name)
		r.notify(name)
		known = true
	}
	r.notify(agent)
	return known
}
