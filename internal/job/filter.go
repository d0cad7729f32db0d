package job

import (
	"slices"
	"strings"
)

// MaxFilterText bounds each text of a [Filter], in bytes: it is looked for in thousands of jobs.
const MaxFilterText = 500

// Filter selects jobs. A member that is empty does not matter, so the zero value selects all.
type Filter struct {
	// Tenant is whose jobs they are.
	Tenant string
	// States are those in which a job may be; what an instance has runs, whether it has begun or not.
	States []State
	// Band is the band of a job, and Instance where its last run is or was.
	Band     Band
	Instance string
	// Text is a part of one of the job's ids, its tenant, its instance, or its errors; Error is one
	// of its errors only. Upper and lower case are alike.
	Text, Error string
	// Since and Until, in milliseconds since the Unix epoch, select the jobs that were there at some
	// time between the two.
	Since, Until int64
}

// All reports whether the filter selects every job.
func (f Filter) All() bool {
	return f.Tenant == "" && len(f.States) == 0 && f.Band == "" && f.Instance == "" && f.Text == "" && f.Error == "" && f.Since == 0 && f.Until == 0
}

// Wants reports whether jobs in one of some states may be among those that the filter selects.
func (f Filter) Wants(states ...State) bool {
	return len(f.States) == 0 || slices.ContainsFunc(states, func(s State) bool { return slices.Contains(f.States, s) })
}

// Has reports whether the filter selects a job.
func (f Filter) Has(j Job) bool {
	j = j.Seen()
	state := j.State
	if state == Leased {
		state = Running
	}
	switch {
	case f.Tenant != "" && j.Tenant != f.Tenant,
		!f.Wants(state),
		f.Band != "" && j.Band() != f.Band,
		f.Instance != "" && !strings.EqualFold(j.Run.Instance, f.Instance),
		f.Until != 0 && j.CreatedAt > f.Until,
		f.Since != 0 && j.FinishedAt != 0 && j.FinishedAt < f.Since:
		return false
	}
	errors := append(slices.Clone(j.Lost), j.Reason)
	if f.Error != "" && !hold(f.Error, errors) {
		return false
	}
	return f.Text == "" || hold(f.Text, append(errors, j.ID, j.Key, j.Run.Upstream, j.Tenant, j.Run.Instance))
}

// hold reports whether one of some texts contains a part, in upper or lower case.
func hold(part string, texts []string) bool {
	part = strings.ToLower(part)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), part) })
}
