package fleet

import "time"

// unnamed handles an instance that its agent's report does not name, and reports whether that
// changes anything. One that the same process has named before is no longer there, and what is
// only remembered is no news. An agent that has just started may find its instances one by one, and
// what runs there goes on meanwhile: such an instance stays as its agent's predecessor left it,
// unless the agent has too many of them.
func (r *Registry) unnamed(name string, rec *record, report Report) (changed bool) {
	if rec.namedBy == report.Boot || rec.namedBy == 0 || len(r.of[report.Agent]) > MaxInstances {
		r.drop(name)
		return true
	}
	changed = !rec.orphaned || !rec.left
	rec.orphaned, rec.left = true, true
	return changed
}

// Forget removes an instance that is offline. It reports whether it did; an
// instance that its agent still reports would only come back.
func (r *Registry) Forget(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.instances[name]
	if rec == nil || rec.static {
		return false
	}
	if state, _ := rec.state(time.Now()); state != Offline {
		return false
	}
	r.drop(name)
	r.notify(name)
	return true
}

// forgetOld drops instances of agents that left long ago.
func (r *Registry) forgetOld(now time.Time) {
	r.cleaned = now
	for name, rec := range r.instances {
		if !rec.static && now.Sub(rec.seen) > keptFor(rec.orphaned && rec.left) {
			r.drop(name)
			r.notify(name)
		}
	}
	for name, a := range r.agents {
		if now.Sub(a.heard) > forgetAfter {
			delete(r.agents, name)
		}
	}
}
