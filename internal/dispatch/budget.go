package dispatch

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// classBurst and classEvery bound the questions about one class, classesBurst
	// and classesEvery those about all classes together: whoever posts prompts
	// with names that nobody has must not keep the instances busy with them.
	classBurst   = 5
	classEvery   = 2 * time.Second
	classesBurst = 30
	classesEvery = 200 * time.Millisecond
	// maxQuiet bounds the pause after questions that taught nothing.
	maxQuiet = time.Minute
	// maxBudgets bounds the classes that are counted.
	maxBudgets = 1000
)

// budget says how often the instances may be asked about a class.
type budget struct {
	mu      sync.Mutex
	all     *rate.Limiter
	classes map[string]*allowance
}

// allowance is the budget of one class.
type allowance struct {
	limiter *rate.Limiter
	// quiet is until when only those who would be refused may ask, pause how
	// long that lasted when it began.
	quiet time.Time
	pause time.Duration
}

func newBudget() *budget {
	return &budget{all: rate.NewLimiter(rate.Every(classesEvery), classesBurst), classes: map[string]*allowance{}}
}

// of is the allowance of a class. The caller holds the lock.
func (b *budget) of(class string) *allowance {
	own := b.classes[class]
	if own == nil {
		if len(b.classes) >= maxBudgets {
			clear(b.classes) // the budget of all bounds them still
		}
		own = &allowance{limiter: rate.NewLimiter(rate.Every(classEvery), classBurst)}
		b.classes[class] = own
	}
	return own
}

// take reports whether a question about a class may be put now. curious says
// that the prompt is accepted whatever the answer: such prompts ask more and
// more seldom while that teaches nothing, because lists that a node fills by
// itself never have the value.
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

// taught ends the pause of a class: its lists change.
func (b *budget) taught(class string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of(class)
	own.pause, own.quiet = 0, time.Time{}
}
