package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// MaxInstances is how many instances have series of their own. Those that come later are
// "other".
const MaxInstances = 1000

const otherInstance = "other"

// busy counts how long each instance has worked, by the priority class of the jobs.
type busy struct {
	vec *prometheus.CounterVec

	mu        sync.Mutex
	instances map[string]map[job.Band]prometheus.Counter
}

func newBusy(m *Metrics) *busy {
	return &busy{
		vec:       m.counters("comfyhub_gpu_seconds_total", "Seconds for which an instance has executed jobs, by the priority class of the jobs. A run is added when it ends.", "server", "band"),
		instances: map[string]map[job.Band]prometheus.Counter{},
	}
}

// add adds a run.
func (b *busy) add(instance string, band job.Band, ran time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	instance = b.admit(instance)
	c := b.instances[instance][band]
	if c == nil {
		c = b.vec.WithLabelValues(instance, string(band))
		b.instances[instance][band] = c
	}
	c.Add(ran.Seconds())
}

// admit gives an instance a place if there is one, and returns its label. The caller holds
// the lock.
func (b *busy) admit(instance string) string {
	if b.instances[instance] == nil && len(b.instances) >= MaxInstances {
		instance = otherInstance
	}
	if b.instances[instance] == nil {
		b.instances[instance] = map[job.Band]prometheus.Counter{}
	}
	return instance
}

// named returns which of some instances have series of their own.
func (b *busy) named(instances []fleet.Instance) []fleet.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []fleet.Instance
	for _, i := range instances {
		if b.admit(i.Name) == i.Name {
			out = append(out, i)
		}
	}
	return out
}

// keep forgets the instances that are not in the fleet any more.
func (b *busy) keep(instances []fleet.Instance) {
	here := map[string]bool{otherInstance: true}
	for _, i := range instances {
		here[i.Name] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.instances {
		if !here[name] {
			delete(b.instances, name)
			b.vec.DeletePartialMatch(prometheus.Labels{"server": name})
		}
	}
}
