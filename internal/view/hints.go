package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/hints"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/resultcache"
)

const (
	// unseenAfter is how long somebody has to open a preview before it counts as one that nobody has
	// opened.
	unseenAfter = 10 * time.Minute
	// maxPreviews bounds the previews of a job that are looked at.
	maxPreviews = 32
)

// Measured returns where the time of jobs like one goes, as far as it was measured. subject is what
// the body of a live job says its result depends on, and kind returns what instances say about a node
// class.
func (s Finder) Measured(ctx context.Context, v Viewer, j job.Job, g hints.Graph, subject []byte, kind func(class string) hints.Kind) hints.Measured {
	spent, least, runs := s.Dispatch.Forecasts.Spent(j.Shape, j.Run.Instance)
	m := hints.Measured{Runs: runs}
	for class, took := range spent {
		m.Classes = append(m.Classes, hints.Spent{Class: class, Phase: hints.PhaseOf(class, kind(class)), Took: took, Least: least[class]})
	}
	slices.SortFunc(m.Classes, func(a, b hints.Spent) int { return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Class, b.Class)) })
	m.Extra, m.Cold, m.Ran = s.Dispatch.Forecasts.Loading(j.Shape, j.Run.Instance)
	if g.Model != "" && s.SeesAll(v) {
		m.Tenants = s.Dispatch.Forecasts.ModelUsers(g.Model)
	}
	m.Equal = s.equal(ctx, j, subject)
	return m
}

// equal returns a job of the same tenant that has made the same as one, nil if there is none.
func (s Finder) equal(ctx context.Context, j job.Job, subject []byte) *hints.Equal {
	of, known := resultcache.Decode(subject)
	if !known && !j.State.Ended() {
		return nil
	}
	equal, err := s.Queue.EqualTo(ctx, j, of.Key)
	if err != nil || equal.StartedAt == 0 { // it is only a hint
		return nil
	}
	until := s.Queue.Clock().Now()
	if j.State.Ended() {
		until = time.UnixMilli(j.CreatedAt)
	}
	return &hints.Equal{
		ID: equal.ID, Ago: until.Sub(time.UnixMilli(equal.FinishedAt)), Took: time.Duration(equal.FinishedAt-equal.StartedAt) * time.Millisecond,
	}
}

// Unseen returns the output nodes of an ended job that have made nothing but previews, none of which
// anybody has opened although there was time. outputs are those of its history entry.
func (s Finder) Unseen(ctx context.Context, j job.Job, outputs []byte) (nodes []string) {
	if j.State != job.Done || s.Queue.Clock().Now().Sub(time.UnixMilli(j.FinishedAt)) < unseenAfter {
		return nil
	}
	looked := 0
	pyjson.Members(outputs, func(node string, output []byte) {
		files := comfyui.Files(output)
		unseen := len(files) > 0
		for _, f := range files {
			if looked++; !unseen || looked > maxPreviews || f.Ref.Type != job.TypeTemp {
				unseen = false
				break
			}
			e, err := s.Files.Resolve(ctx, j.Tenant, f.Ref)
			unseen = err == nil && e.Unseen
		}
		if unseen {
			nodes = append(nodes, node)
		}
	})
	return nodes
}
