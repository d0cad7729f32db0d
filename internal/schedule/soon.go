package schedule

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Soon is a busy instance that has models loaded.
type Soon struct {
	Idle
	// Free is how long until it has finished what it is running.
	Free time.Duration
}

// Held is a job that waits for a busy instance with its models loaded, because that one will finish
// it sooner than an idle one that must load them.
type Held struct {
	Job      job.Job
	Instance string
	// For is how long it waits at most.
	For time.Duration
}

// waitsFor returns the busy instance that a job should wait for rather than load its models on the
// nth free one; nil if there is none. behind are the jobs after it: those that could take an
// instance from it must be allowed to go before it.
func (p *picking) waitsFor(j job.Job, n int, behind []job.Job) *Held {
	models := p.Models[j.Class]
	if p.Soon == nil || p.Due[j.Key] || p.Waited[j.Key] || len(models) == 0 || p.loaded(j.Class)[n] == len(models) {
		return nil
	}
	free := p.free[n]
	cold, load := p.Ends(j, free.Name)
	if load <= 0 {
		return nil
	}
	if p.soon == nil {
		p.soon = p.Soon()
	}
	first, best := -1, cold+load
	for at, s := range p.soon {
		if s.Free < best && s.Can(j) && !slices.Contains(j.FailedAt, s.Name) && common(models, s.Loaded) == len(models) {
			if warm, _ := p.Ends(j, s.Name); s.Free+warm < best {
				first, best = at, s.Free+warm
			}
		}
	}
	if first < 0 {
		return nil
	}
	for _, other := range behind {
		if !mayOvertake(other, j) && slices.ContainsFunc(p.free, func(s spot) bool { return s.Can(j) && s.Can(other) }) {
			return nil
		}
	}
	chosen := p.soon[first].Name
	p.soon[first].Classes = nil // it takes one job
	return &Held{Job: j, Instance: chosen, For: load}
}
