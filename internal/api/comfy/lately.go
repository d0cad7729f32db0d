package comfy

import (
	"cmp"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

const (
	// togetherFor is how long a delete or a clear tells what a bare interrupt
	// of the same caller means: some clients cancel with one call of each.
	togetherFor = 10 * time.Second
	// behindFor is the same for an interrupt that comes first. It is short: the
	// next prompt is shown at once, and soon a clear no longer means it.
	behindFor = 2 * time.Second
	// maxGesture bounds the jobs that are remembered of one call.
	maxGesture = 1000
)

// lately remembers what each caller has done in the last seconds.
type lately struct {
	tenantlru.Map[gestures]
	// together and after stand in for togetherFor and behindFor where not zero.
	together, after time.Duration
}

// RememberCalls replaces the times for which a delete, a clear and an interrupt
// are remembered, before the first request. Tests need longer ones.
func (c *Room) RememberCalls(together, after time.Duration) {
	c.cancels.lately.together, c.cancels.lately.after = together, after
}

// gestures are the last calls of a caller that tell what others of it mean.
type gestures struct{ named, cleared, interrupted gesture }

// gesture is a call, with the running jobs that it was about.
type gesture struct {
	keys []string
	at   time.Time
}

func made(keys []string) gesture {
	return gesture{slices.Clone(keys[:min(len(keys), maxGesture)]), time.Now()}
}

func (g gesture) within(d time.Duration) []string {
	if time.Since(g.at) > d {
		return nil
	}
	return slices.Clone(g.keys)
}

func (l *lately) note(a api.Requester, change func(*gestures)) {
	if !a.Anonymous() {
		l.Change(a.Tenant, a.Caller(), change)
	}
}

func (l *lately) keys(a api.Requester, d time.Duration, which func(*gestures) gesture) (keys []string) {
	l.Read(a.Tenant, a.Caller(), func(g *gestures) { keys = which(g).within(d) })
	return keys
}

// name notes that the caller has deleted a job that it sees run.
func (l *lately) name(a api.Requester, key string) {
	l.note(a, func(g *gestures) { g.named = made(append(g.named.within(cmp.Or(l.together, togetherFor)), key)) })
}

// named are the jobs of name.
func (l *lately) named(a api.Requester) []string {
	return l.keys(a, cmp.Or(l.together, togetherFor), func(g *gestures) gesture { return g.named })
}

// clear notes which jobs went on when the caller cleared its own.
func (l *lately) clear(a api.Requester, running []string) {
	l.note(a, func(g *gestures) { g.cleared = made(running) })
}

// cleared are the jobs of clear.
func (l *lately) cleared(a api.Requester) []string {
	return l.keys(a, cmp.Or(l.together, togetherFor), func(g *gestures) gesture { return g.cleared })
}

// interrupt notes which jobs waited, or ran without being shown, when the
// caller interrupted the one that was.
func (l *lately) interrupt(a api.Requester, behind []string) {
	l.note(a, func(g *gestures) { g.interrupted = made(behind) })
}

// behind are the jobs of interrupt.
func (l *lately) behind(a api.Requester) []string {
	return l.keys(a, cmp.Or(l.after, behindFor), func(g *gestures) gesture { return g.interrupted })
}
