package fleet

import (
	"fmt"
	"maps"
	"net/url"
	"time"
)

// nameKeptFor is how long the name of an instance is reserved for an agent that is
// absent and has a key to return with.
const nameKeptFor = 10 * time.Minute

// admit decides whether a report is the newest of the agent that owns its name.
func (r *Registry) admit(report Report, now time.Time) error {
	host := servedAt(report)
	owner := r.agents[report.Agent]
	switch {
	case owner == nil:
		if len(r.agents) >= maxAgents {
			r.forgetOld(now)
		}
		if len(r.agents) >= maxAgents {
			return fmt.Errorf("%w: agent %q", ErrTooMany, report.Agent)
		}
		owner = &agent{}
		r.agents[report.Agent] = owner
	case report.Boot == owner.boot && report.Sender.Key == owner.key:
		if report.Seq <= owner.seq {
			return ErrStale
		}
		urls, err := moved(owner.urls, report)
		if err != nil {
			return err
		}
		*owner = agent{boot: owner.boot, seq: report.Seq, key: owner.key, host: host, heard: now, urls: urls}
		return nil
	case owner.left || now.Sub(owner.heard) > takeover:
		if report.Boot < owner.boot && now.Sub(owner.heard) <= takeover {
			return ErrStale // a late report of the boot before the one that left
		}
	case report.Boot < owner.boot && report.Sender.Key == owner.key:
		return ErrStale
	case host != "" && host == owner.host && report.Boot > owner.boot:
		// Restarted: no two processes can listen on one address. Another key gets
		// here only if none is pinned, when one machine is the whole fleet.
	default:
		return fmt.Errorf("%w: an agent %q at %s is alive; the one at %s needs another --name",
			ErrNameTaken, report.Agent, owner.host, host)
	}
	urls, err := moved(nil, report)
	if err != nil {
		return err
	}
	*owner = agent{boot: report.Boot, seq: report.Seq, key: report.Sender.Key, host: host, heard: now, urls: urls}
	return nil
}

// moved adds the addresses in a report to those that its agent has given since it
// started. An instance without one is shown only.
func moved(urls map[string]string, report Report) (map[string]string, error) {
	all := make(map[string]string, len(urls)+len(report.Instances))
	maps.Copy(all, urls)
	for _, i := range report.Instances {
		before := all[i.Name]
		switch {
		case i.URL == "":
		case before != "" && before != i.URL:
			return nil, fmt.Errorf("%w: %q of agent %q", ErrMoved, i.Name, report.Agent)
		case len(all) >= maxMoves:
			return nil, fmt.Errorf("%w: agent %q has used %d names", ErrTooMany, report.Agent, len(all))
		default:
			all[i.Name] = i.URL
		}
	}
	return all, nil
}

// servedAt returns the address at which an agent serves its instances.
func servedAt(report Report) string {
	for _, i := range report.Instances {
		if u, err := url.Parse(i.URL); err == nil && !i.Direct {
			return u.Host
		}
	}
	return ""
}

// free reports whether an instance's name may go to another agent: its own has left,
// gone silent or started again without it. If nobody else can be its own agent, the name is kept long enough
// for a restart.
func (r *Registry) free(rec *record, now time.Time) bool {
	return !rec.static && (rec.orphaned || r.absent(rec.agent, now)) && (rec.key == "" || now.Sub(rec.seen) > nameKeptFor)
}

// absent reports whether an agent has left or gone silent.
func (r *Registry) absent(name string, now time.Time) bool {
	a := r.agents[name]
	return a == nil || a.left || now.Sub(a.heard) > takeover
}

// AgentLeft records that an agent has left the gossip or was found dead. Its
// instances take no job until they are reported or observed again. A boot or a key
// that is not the current one changes nothing: it is the leave message of an
// earlier process, or an attempt to take the agent's place.
func (r *Registry) AgentLeft(name string, boot int64, key string) {
	r.agentLeft(name, boot, key, false)
}

// AgentStopped is AgentLeft for an agent that has said so itself. Its instances run on,
// and a successor may report them soon.
func (r *Registry) AgentStopped(name string, boot int64, key string) {
	r.agentLeft(name, boot, key, true)
}

func (r *Registry) agentLeft(name string, boot int64, key string, announced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.agents[name]
	if a == nil || a.boot != boot || a.key != key || a.left {
		return
	}
	a.left = true
	for instance, rec := range r.of[name] {
		if rec.orphaned {
			continue // it had gone before
		}
		rec.orphaned, rec.left = true, announced
		r.notify(instance)
	}
}
