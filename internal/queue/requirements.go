package queue

import "sync"

// keptRequirements bounds the requirements that a process keeps, in bytes. A class is the hash of
// its requirements, so they never change and need not be read twice.
const keptRequirements = 16 << 20

// requirements are those of the classes met most recently. The zero value is empty.
type requirements struct {
	mu    sync.Mutex
	known map[string][]byte
	bytes int
}

// of returns the requirements of the classes that are known, and the classes that are not.
func (r *requirements) of(classes []string) (known map[string][]byte, unknown []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known = make(map[string][]byte, len(classes))
	for _, class := range classes {
		if text, ok := r.known[class]; ok {
			known[class] = text
		} else {
			unknown = append(unknown, class)
		}
	}
	return known, unknown
}

// keep keeps the requirements of a class. If there is no more room, it drops all others: those
// still in use come back with the next look.
func (r *requirements) keep(class string, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := len(class) + len(text)
	if _, ok := r.known[class]; ok || size > keptRequirements {
		return
	}
	if r.known == nil || r.bytes+size > keptRequirements {
		r.known, r.bytes = map[string][]byte{}, 0
	}
	r.known[class] = text
	r.bytes += size
}
