package sim

import (
	"hash/fnv"
	"slices"
	"sync"
)

// memory is the simulated GPU memory: which models are loaded.
type memory struct {
	total int64

	mu     sync.Mutex
	loaded []model // least recently used first
}

type model struct {
	name string
	size int64
}

// baseUsage is the memory that a CUDA context takes before any model.
const baseUsage = 600 << 20

func newMemory(total int64) *memory { return &memory{total: total} }

// modelSize gives each model name a plausible size that never changes.
func modelSize(folder, name string) int64 {
	low, spread := int64(2<<30), int64(5<<30)
	if folder != "checkpoints" && folder != "diffusion_models" {
		low, spread = 100<<20, 900<<20
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(folder + "/" + name)) // never fails
	return low + int64(h.Sum32())%spread
}

// use marks a model as used. If the model is not in memory, use loads it, evicting
// older ones, and reports that it did.
func (m *memory) use(folder, name string) (loaded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := folder + "/" + name
	if i := slices.IndexFunc(m.loaded, func(l model) bool { return l.name == key }); i >= 0 {
		known := m.loaded[i]
		m.loaded = append(slices.Delete(m.loaded, i, i+1), known)
		return false
	}
	size := modelSize(folder, name)
	for len(m.loaded) > 0 && m.usedLocked()+size > m.total {
		m.loaded = m.loaded[1:]
	}
	m.loaded = append(m.loaded, model{key, size})
	return true
}

func (m *memory) usedLocked() int64 {
	used := int64(baseUsage)
	for _, l := range m.loaded {
		used += l.size
	}
	return used
}

// usage returns the bytes in use, never more than the total.
func (m *memory) usage() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return min(m.usedLocked(), m.total)
}

func (m *memory) unloadAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = nil
}
