package instance

import (
	"slices"
	"sync"
)

// loaded is what an instance has in its memory.
type loaded struct {
	mu sync.Mutex
	// names are the models of the run that began here last, sorted. cold says that it had to load
	// them.
	names []string
	cold  bool
}

// Loads notes which models the instance has after the run that is beginning, and reports whether it
// had others before.
func (l *loaded) Loads(models []string) (cold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cold = len(models) > 0 && !slices.Equal(models, l.names)
	l.names, l.cold = models, cold
	return cold
}

// unload notes that it may be another process, which has loaded nothing.
func (l *loaded) unload() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = nil
}

// Models returns the models that the instance has, sorted.
func (l *loaded) Models() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names
}

// IsCold reports whether the run that began last had to load its models.
func (l *loaded) IsCold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cold
}
