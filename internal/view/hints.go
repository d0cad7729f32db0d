package view

import (
	"cmp"
	"slices"

	"github.com/comfyhub/comfyhub/internal/hints"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Measured returns where the time of jobs like one goes, as far as it was measured. kind returns
// what instances say about a node class.
func (s Finder) Measured(j job.Job, kind func(class string) hints.Kind) hints.Measured {
	spent, runs := s.Dispatch.Forecasts.Spent(j.Shape, j.Run.Instance)
	m := hints.Measured{Runs: runs}
	for class, took := range spent {
		m.Classes = append(m.Classes, hints.Spent{Class: class, Phase: hints.PhaseOf(class, kind(class)), Took: took})
	}
	slices.SortFunc(m.Classes, func(a, b hints.Spent) int { return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Class, b.Class)) })
	m.Extra, m.Cold, m.Ran = s.Dispatch.Forecasts.Loading(j.Shape, j.Run.Instance)
	return m
}
