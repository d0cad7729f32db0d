package fleet

import "time"

// Former is what hubs remember of an instance, so that one that restarts shows those that are gone,
// and knows those that are unhealthy.
type Former struct {
	Name, Agent, Kind, GPU, Version string
	// Key is its agent's, for which its name is kept a while.
	Key string

	VRAMTotal, Boot int64
	// Seen is when it was last reported.
	Seen time.Time
	// Gone means that its agent is, and Left that it has said so before.
	Gone, Left bool
	// Sick says why it did not work, empty if it did; Broken that only a restart of its process cures it.
	Sick   string
	Broken bool
}

// Formers returns what is to be remembered of the instances that agents have reported.
func (r *Registry) Formers() []Former {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Former, 0, len(r.instances))
	for _, rec := range r.instances {
		if rec.static || rec.seen.IsZero() {
			continue
		}
		list = append(list, Former{
			Name: rec.report.Name, Agent: rec.agent, Key: rec.key, Kind: rec.report.Kind, GPU: rec.report.GPU, Version: rec.report.Version,
			VRAMTotal: rec.report.VRAMTotal, Boot: rec.report.Boot, Seen: rec.seen, Gone: rec.orphaned, Left: rec.orphaned && rec.left,
			Sick: rec.sick, Broken: rec.broken,
		})
	}
	return list
}

// Remember takes in what was known before this hub started. An instance that is not reported yet is
// offline; one that is has only its sickness from then, if it is the same process.
func (r *Registry) Remember(all []Former) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, f := range all {
		rec := r.instances[f.Name]
		switch {
		case now.Sub(f.Seen) > keptFor(f.Left):
			continue
		case rec == nil && len(r.instances) < maxFleet:
			rec = r.put(f.Name, &record{agent: f.Agent, key: f.Key, seen: f.Seen, orphaned: true, left: f.Left, report: InstanceReport{
				Name: f.Name, Kind: f.Kind, GPU: f.GPU, Version: f.Version, VRAMTotal: f.VRAMTotal, VRAMFree: f.VRAMTotal, Boot: f.Boot,
			}})
			if f.Sick != "" && !f.Broken {
				rec.report.Queue = 1 // what it hung on: its first report without that says that it has recovered
			}
		case rec == nil || rec.static || rec.agent != f.Agent || rec.report.Boot != f.Boot || rec.sick != "" || !f.Broken && rec.report.Queue == 0:
			continue
		}
		rec.sick, rec.broken = f.Sick, f.Broken
		r.notify(f.Name)
	}
}

// keptFor is how long an instance is listed that nobody reports any more: one that has gone without
// a word is a fault, and somebody should hear of it also after a weekend.
func keptFor(left bool) time.Duration {
	if left {
		return forgetAfter
	}
	return 7 * 24 * time.Hour
}
