package dispatch

import (
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
)

// maxMemory bounds the jobs, and the shapes of graphs, that are known to need more memory than some
// instance had.
const maxMemory = 10_000

// need says how much GPU memory was too little for a job, in bytes, and which instances that could
// run it have more.
type need struct {
	had    int64
	larger []string
}

// memory knows how much GPU memory has been too little for jobs and for graphs of one shape. The
// zero value knows nothing.
type memory struct {
	fleet     *fleet.Registry
	instances *Instances
	reports   *instance.Reports

	mu     sync.Mutex
	jobs   map[string]need
	shapes map[string]int64
}

// note remembers that a job ran out of memory.
func (m *memory) note(key string, graph []byte, n need) {
	if n.had <= 0 {
		return
	}
	shape := catalog.Shape(graph)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shapes == nil || len(m.shapes) >= maxMemory {
		m.shapes = map[string]int64{} // what is forgotten will be learned again
	}
	m.shapes[shape] = max(m.shapes[shape], n.had)
	m.send(key, n)
}

// avoid keeps a job away from the instances that are too small for it.
func (m *memory) avoid(key string, n need) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.send(key, n)
}

// send stores a job's need. The caller holds the lock.
func (m *memory) send(key string, n need) {
	if m.jobs == nil || len(m.jobs) >= maxMemory {
		m.jobs = map[string]need{}
	}
	m.jobs[key] = n
}

// of returns how much memory has been too little for graphs like this one.
func (m *memory) of(graph []byte) int64 {
	m.mu.Lock()
	known := len(m.shapes) > 0
	m.mu.Unlock()
	if !known {
		return 0
	}
	shape := catalog.Shape(graph)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shapes[shape]
}

// fits notes that such a graph has run on an instance with that much memory.
func (m *memory) fits(graph []byte, had int64) {
	known := m.of(graph)
	shape := ""
	if known >= had && known > 0 {
		shape = catalog.Shape(graph)
	}
	if shape == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.shapes, shape) // the memory must have been taken by something else
}

// forget forgets a job that has ended.
func (m *memory) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, key)
}

// avoidSmall adds to a set the jobs that an instance is too small for, as long as a larger one is
// there.
func (m *memory) avoidSmall(i fleet.Instance, set map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, n := range m.jobs {
		if i.Report.Memory() <= n.had && slices.ContainsFunc(n.larger, m.mayRun) {
			set[key] = true
		}
	}
}

// mayRun reports whether an instance can take jobs, now or once it is free.
func (m *memory) mayRun(name string) bool {
	i, known := m.fleet.Instance(name)
	conn := m.instances.Get(name)
	return known && conn != nil && conn.IsOpen() && i.State != fleet.Sick && i.State != fleet.Draining && i.State != fleet.Offline
}

// larger returns the names of the usable instances that could run the job and have more GPU memory.
func (m *memory) larger(r *run, than int64) (names []string) {
	for _, conn := range m.instances.others(r) {
		if than > 0 && m.reports.Memory(conn) > than && m.mayRun(conn.Name) {
			names = append(names, conn.Name)
		}
	}
	return names
}
