package run

import (
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/schedule"
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

// Memory knows how much GPU memory has been too little for jobs and for graphs of one shape. It
// knows nothing at first.
type Memory struct {
	fleet   *fleet.Registry
	links   *instance.Links
	reports *instance.Reports

	mu     sync.Mutex
	jobs   map[string]need
	shapes map[string]int64
}

// NewMemory returns one that knows nothing.
func NewMemory(registry *fleet.Registry, reports *instance.Reports, links *instance.Links) *Memory {
	return &Memory{fleet: registry, reports: reports, links: links}
}

// note remembers that a job ran out of memory.
func (m *Memory) note(key string, graph []byte, n need) {
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
func (m *Memory) avoid(key string, n need) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.send(key, n)
}

// send stores a job's need. The caller holds the lock.
func (m *Memory) send(key string, n need) {
	if m.jobs == nil || len(m.jobs) >= maxMemory {
		m.jobs = map[string]need{}
	}
	m.jobs[key] = n
}

// of returns how much memory has been too little for graphs like this one.
func (m *Memory) of(graph []byte) int64 {
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
func (m *Memory) fits(graph []byte, had int64) {
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
func (m *Memory) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, key)
}

// AvoidSmall adds the jobs that an instance is too small for to what it has refused, as long as a larger
// one is there.
func (m *Memory) AvoidSmall(i fleet.Instance, to *schedule.Idle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, n := range m.jobs {
		if i.Report.Memory() <= n.had && slices.ContainsFunc(n.larger, m.mayRun) {
			to.Refuse(key)
		}
	}
}

// mayRun reports whether an instance can take jobs, now or once it is free.
func (m *Memory) mayRun(name string) bool {
	i, known := m.fleet.Instance(name)
	conn := m.links.Get(name)
	return known && conn != nil && conn.IsOpen() && i.State != fleet.Sick && i.State != fleet.Draining && i.State != fleet.Offline
}

// larger returns the names of the usable instances that could run the job and have more GPU memory.
func (m *Memory) larger(r *Run, than int64) (names []string) {
	for _, conn := range r.elsewhere() {
		if than > 0 && m.reports.Memory(conn) > than && m.mayRun(conn.Name) {
			names = append(names, conn.Name)
		}
	}
	return names
}
