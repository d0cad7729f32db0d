package instance

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// classBurst and classEvery limit the questions about one class, classesBurst and classesEvery
	// those about all classes together: prompts with made-up names must not keep the instances
	// busy.
	classBurst   = 5
	classEvery   = 2 * time.Second
	classesBurst = 30
	classesEvery = 200 * time.Millisecond
	// maxQuiet bounds the pause after questions that taught us nothing.
	maxQuiet = time.Minute
	// maxBudgets bounds the number of classes that are tracked.
	maxBudgets = 1000
)

// budget limits how often the instances may be asked about a class.
type budget struct {
	mu      sync.Mutex
	all     *rate.Limiter
	classes map[string]*allowance
}

// allowance is the budget of one class.
type allowance struct {
	limiter *rate.Limiter
	// quiet is until when only prompts that would otherwise be refused may ask, and pause is how
	// long that period was when it began.
	quiet time.Time
	pause time.Duration
}

func newBudget() *budget {
	return &budget{all: rate.NewLimiter(rate.Every(classesEvery), classesBurst), classes: map[string]*allowance{}}
}

// of returns the allowance of a class. The caller holds the lock.
func (b *budget) of(class string) *allowance {
	own := b.classes[class]
	if own == nil {
		if len(b.classes) >= maxBudgets {
			clear(b.classes) // the common limit still applies
		}
		own = &allowance{limiter: rate.NewLimiter(rate.Every(classEvery), classBurst)}
		b.classes[class] = own
	}
	return own
}

// take reports whether a question about a class may be asked now. curious says that the prompt is
// accepted whatever the answer: such prompts ask less and less often as long as that teaches us
// nothing, because lists that a node fills by itself never contain the value.
func (b *budget) take(class string, now time.Time, curious bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of(class)
	if curious {
		if now.Before(own.quiet) {
			return false
		}
		own.pause = min(max(2*own.pause, classEvery), maxQuiet)
		own.quiet = now.Add(own.pause)
	}
	return own.limiter.AllowN(now, 1) && b.all.AllowN(now, 1)
}

// taught ends the pause of a class: its lists do change.
func (b *budget) taught(class string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of(class)
	own.pause, own.quiet = 0, time.Time{}
}
