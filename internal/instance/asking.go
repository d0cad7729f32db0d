package instance

import (
	"context"
	"sync"
	"time"
)

const (
	// minPatience and maxPatience bound how long a client waits for an instance to say what it can
	// run. In between, it waits twice as long as the instance took last time.
	minPatience = 2 * time.Second
	maxPatience = 10 * time.Second
	// latePatience is the same for an instance whose last answer was late or never came: one that
	// hangs must not slow down every client.
	latePatience = 300 * time.Millisecond
	// restFactor times the time it took to answer is how long an instance is left alone before it
	// is asked for everything again. The question keeps ComfyUI's one thread from its work: half a
	// second for 600 classes beside a running prompt.
	restFactor = 4
	// maxRest bounds the pause before it is asked again because it has changed: that pause is as
	// long as the answer took, and clients are waiting for it.
	maxRest = 2 * time.Second
)

// asking knows how old the connection's knowledge of its instance is and which questions are under
// way, so that the instance gets one question however many clients want to know.
type asking struct {
	// turn is for questions about a class: one at a time.
	turn chan struct{}

	mu sync.Mutex
	// read is when the last whole reading began, took how long it lasted, and hash is of what it
	// returned.
	read time.Time
	took time.Duration
	hash string
	// doubted is when something last happened that may have changed what the instance offers.
	doubted time.Time
	// late says that the last question was not answered in time.
	late bool
	// whole is the reading under way, parts the questions about single classes.
	whole *question
	parts map[string]*question
	// asked is when the last answered question about each class began. patches are what such
	// answers have changed since the last whole reading.
	asked   map[string]time.Time
	patches map[string]patch
}

// question is one that has not been answered yet.
type question struct {
	// done is closed when the answer has been taken in, or will not come.
	done chan struct{}
	// from is when the instance may be asked, until how long it is worth waiting for.
	from, until time.Time
}

// patch is what an instance said about one class.
type patch struct {
	at   time.Time
	body []byte
}

func newAsking() *asking {
	return &asking{
		turn: make(chan struct{}, 1), parts: map[string]*question{},
		asked: map[string]time.Time{}, patches: map[string]patch{},
	}
}

// begin opens a question to be asked at from. The caller holds the lock.
func (a *asking) begin(from time.Time) *question {
	patience := min(max(2*a.took, minPatience), maxPatience)
	if a.late {
		patience = latePatience
	}
	return &question{done: make(chan struct{}), from: from, until: from.Add(patience)}
}

// wholeSince returns the reading to wait for so that nothing known is older than age, and whether
// the caller must do the reading. It returns nil if what is known is recent enough, or as recent as
// the instance can stand.
func (a *asking) wholeSince(now time.Time, age time.Duration) (q *question, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := now
	if now.Sub(a.read) <= max(age, restFactor*a.took) {
		if !a.doubted.After(a.read) {
			return nil, false
		}
		// It has changed, so the client waits until the instance may be asked again.
		if rested := a.read.Add(2 * min(a.took, maxRest)); rested.After(from) {
			from = rested
		}
	}
	if a.whole == nil {
		a.whole = a.begin(from)
		return a.whole, true
	}
	return a.whole, false
}

// partSince is wholeSince for one class: it returns the question to wait for so that what is known
// of the class was asked for at asOf or later. It calls allowed before opening a new question, to
// find out whether it may. Anything known from before a change is too old in any case.
func (a *asking) partSince(class string, asOf time.Time, allowed func() bool) (q *question, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.read
	if asked := a.asked[class]; asked.After(known) {
		known = asked
	}
	if !known.Before(asOf) && !a.doubted.After(known) {
		return nil, false
	}
	if q = a.parts[class]; q != nil {
		return q, false
	}
	if !allowed() {
		return nil, false
	}
	q = a.begin(time.Now())
	a.parts[class] = q
	return q, true
}

// settle ends a question. class is empty for a whole reading; err means that no answer came.
func (a *asking) settle(q *question, class string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.whole == q {
		a.whole = nil
	}
	if a.parts[class] == q {
		delete(a.parts, class)
	}
	a.late = err != nil || time.Now().After(q.until)
	close(q.done)
}

// doubt notes that the instance may have changed.
func (a *asking) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubted = time.Now()
}

// Forget is for a new connection: the process there may be a different one.
func (a *asking) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read, a.hash = time.Time{}, ""
	clear(a.patches)
}

// enter waits for its turn to ask about a class.
func (a *asking) enter(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *asking) leave() { <-a.turn }
