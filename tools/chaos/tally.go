package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally is what all clients together have seen.
type tally struct {
	mu      sync.Mutex
	colours int
	prompts []*prompt
	// posts counts the answers to POST /prompt by status, "none" if none came.
	posts map[string]int
	// answered are the times of the 200s among them.
	answered []time.Time
	sockets  int
	pictures int
	again    int // ends seen again after a reconnect
	// lastFull is when Redis was last full. Hubs drop the oldest history to go on.
	lastFull time.Time
	dropped  int // prompts of before then that are in no history any more
	owed     int // pictures that went over a socket only, and that a hub said were lost
	// broken holds the broken promises by kind.
	broken map[string][]string
}

// The promises that a run holds the hubs to.
const (
	lost        = "lost"        // accepted, and neither in the history nor in the queue
	stuck       = "stuck"       // still in the queue when everything is well again
	doubled     = "doubled"     // ended twice on one socket, or two prompts with one file
	wrong       = "wrong"       // another prompt's message or picture
	failed      = "failed"      // ended with an error that the client did not cause
	undelivered = "undelivered" // ended, and its client's socket was not told
	leaked      = "leaked"      // left in Redis or on the disk
	silent      = "silent"      // nothing could be submitted though a hub and Redis were well
	ended       = "ended"       // a program that ended by itself, or never became ready
	panicked    = "panicked"    // a panic in a log
)

var promises = []string{lost, stuck, doubled, wrong, failed, undelivered, leaked, silent, ended, panicked}

func newTally() *tally { return &tally{posts: map[string]int{}, broken: map[string][]string{}} }

// colour returns a colour that no prompt has had.
func (t *tally) colour() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.colours++
	return t.colours
}

// posted notes the answer to a POST.
func (t *tally) posted(p *prompt, answer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.posted = time.Now()
	t.prompts = append(t.prompts, p)
	t.posts[answer]++
	if p.accepted {
		t.answered = append(t.answered, time.Now())
	}
}

// full notes that Redis has been full until now.
func (t *tally) full() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastFull = time.Now()
}

// mayBeDropped reports whether the history of a prompt may be gone: it ended before Redis was
// last full, as far as its client can know.
func (t *tally) mayBeDropped(p *prompt) bool {
	return p.posted.Before(t.lastFull) && (p.client == "" || p.ends > 0)
}

// count adds to one of the counters.
func (t *tally) count(counter *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*counter++
}

// breach notes a broken promise.
func (t *tally) breach(promise, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken[promise] = append(t.broken[promise], time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// answers returns the counted answers as text.
func (t *tally) answers() string {
	var text strings.Builder
	for _, status := range slices.Sorted(maps.Keys(t.posts)) {
		fmt.Fprintf(&text, " %s: %d", status, t.posts[status])
	}
	return text.String()
}
