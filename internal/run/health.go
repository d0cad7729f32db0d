package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// doubtAfter is how many runs in a row must fail on an instance before it is suspected: fewer
	// are more often the fault of a graph.
	doubtAfter = 3
	// firstProbe and longestProbe bound how long an instance whose runs fail rests before it gets
	// the next one. The time doubles with each.
	firstProbe   = 2 * time.Second
	longestProbe = 5 * time.Minute
	// maxMishaps bounds what is stored about one instance, maxIll the instances, and maxGuilty the
	// structures of graphs that fail everywhere.
	maxMishaps, maxIll, maxGuilty = 16, 1000, 1000
)

// streaks is how the instances are doing, as far as this hub's own runs show. It is the one place
// that decides whether to blame an instance or a graph: a job that failed on one instance and was
// finished by another speaks against the first; a job that failed on both speaks against the graph.
// The zero value holds nothing against anybody.
type streaks struct {
	mu sync.Mutex
	// ill are the instances whose last run failed.
	ill map[string]*streak
	// guilty are the structures of graphs that have failed on two instances and have not ended well
	// on any since.
	guilty map[string]bool
}

// streak is an instance's runs since one last ended well there.
type streak struct {
	runs  int
	last  []mishap // the latest ones
	since time.Time
	// others is how many runs other instances have finished since, and proofs how many of those
	// were of jobs that had failed here.
	others, proofs int
	// aside says that the instance is known to be at fault.
	aside bool
	// rest is how long it rests after its last run, and until when that ends.
	rest  time.Duration
	until time.Time
}

// mishap is a run that failed.
type mishap struct {
	job, structure string
	cause          Cause
}

// verdict says that an instance is to be set aside, or no longer, in which case evidence is empty.
type verdict struct{ instance, evidence string }

// structureOf names what a job's graph has in common with others.
func structureOf(j job.Job) string {
	if s, ok := schedule.DecodeStructure(j.Shape); ok {
		return s.Key
	}
	return j.Class
}

// wrong notes that a job's run has failed on an instance. busy says that another instance is at
// work on such a job. doubtful says that so many in a row have failed while others do their work
// that the job may not be to blame.
func (h *streaks) wrong(instance string, j job.Job, cause Cause, busy bool) (doubtful bool, rest time.Duration, said []verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	structure := structureOf(j)
	if cause == Failed && h.guilty[structure] {
		return false, 0, nil
	}
	s := h.ill[instance]
	if s == nil {
		if h.ill == nil || len(h.ill) >= maxIll {
			h.ill = map[string]*streak{}
		}
		s = &streak{since: time.Now()}
		h.ill[instance] = s
	}
	s.runs++
	s.last = append(s.last, mishap{j.Key, structure, cause})
	s.last = s.last[max(0, len(s.last)-maxMishaps):]
	if s.runs < doubtAfter {
		return false, 0, nil
	}
	if !time.Now().Before(s.until) { // else it got this job because no other instance could run it
		s.rest = min(max(2*s.rest, firstProbe), longestProbe)
	}
	s.until = time.Now().Add(s.rest)
	return s.others > 0 || busy, s.rest, h.judge(instance, s)
}

// well notes that a job has ended well on an instance.
func (h *streaks) well(instance string, j job.Job) (said []verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.guilty) > 0 {
		delete(h.guilty, structureOf(j))
	}
	if s := h.ill[instance]; s != nil {
		delete(h.ill, instance)
		if s.aside {
			said = append(said, verdict{instance, ""})
		}
	}
	for name, s := range h.ill {
		s.others++
		if slices.ContainsFunc(s.last, func(m mishap) bool { return m.job == j.Key }) {
			s.proofs++
		}
		said = append(said, h.judge(name, s)...)
	}
	slices.SortFunc(said, func(a, b verdict) int { return cmp.Compare(a.instance, b.instance) })
	return said
}

// judge sets an instance aside if there is enough evidence against it. The caller holds the lock.
func (h *streaks) judge(instance string, s *streak) []verdict {
	if s.runs < doubtAfter || s.proofs == 0 {
		return nil
	}
	if !s.aside {
		s.aside = true
		s.until = time.Now().Add(max(s.rest, firstProbe))
	}
	return []verdict{{instance, s.evidence()}}
}

// evidence describes what speaks against the instance.
func (s *streak) evidence() string {
	counts := map[Cause]int{}
	for _, m := range s.last {
		counts[m.cause]++
	}
	var what []string
	for _, c := range []struct {
		cause Cause
		text  string
	}{{Failed, "ended with an error"}, {Died, "died in it"}, {Refused, "did not take the prompt, or forgot it"}, {Results, "lost the results"}} {
		if n := counts[c.cause]; n > 0 {
			what = append(what, fmt.Sprintf("%d × %s", n, c.text))
		}
	}
	return fmt.Sprintf("set aside: its last %d runs came to nothing (%s); meanwhile others finished %d, %d of them of the same jobs",
		s.runs, strings.Join(what, "; "), s.others, s.proofs)
}

// agreed notes that a job has failed on an instance, or on several for "". The earlier instances
// are cleared of it, and graphs like it say nothing about an instance until one of them ends well.
// It reports whether the job has failed on another before.
func (h *streaks) agreed(instance string, j job.Job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	structure, before := structureOf(j), false
	for name, s := range h.ill {
		if name == instance || !slices.ContainsFunc(s.last, func(m mishap) bool { return m.job == j.Key }) {
			continue
		}
		before = true
		kept := slices.DeleteFunc(s.last, func(m mishap) bool {
			return m.job == j.Key || m.cause == Failed && m.structure == structure && !s.aside
		})
		s.runs -= len(s.last) - len(kept)
		if s.last = kept; s.runs <= 0 || len(kept) == 0 {
			delete(h.ill, name)
		}
	}
	if before {
		if h.guilty == nil || len(h.guilty) >= maxGuilty {
			h.guilty = map[string]bool{}
		}
		h.guilty[structure] = true
	}
	return before
}

// Rests reports whether an instance gets no job for now that others could run.
func (h *streaks) Rests(instance string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.ill[instance]
	return s != nil && s.runs >= doubtAfter && time.Now().Before(s.until)
}

// Doubts reports whether the last runs on an instance have failed.
func (h *streaks) Doubts(instance string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.ill[instance]
	return s != nil && s.runs >= doubtAfter
}

// forget clears what is held against an instance.
func (h *streaks) forget(instance string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ill, instance)
}
