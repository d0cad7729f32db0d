package request

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

const (
	// paceKind is the kind of the records of how long a command's nodes take.
	paceKind = "pace"
	// paceKeep is how long that of an unused command is kept.
	paceKeep = 90 * 24 * time.Hour
	// maxPace bounds how many nodes of a workflow are measured.
	maxPace = 1000
	// paceStep is the weight of a new run.
	paceStep = 0.25
)

// pace is how long nodes take, in seconds: the newest runs count most.
type pace map[string]float64

// mean returns the guess for a node that was never measured: the mean of the others, or 1
// if there are none.
func (p pace) mean() float64 {
	if len(p) == 0 {
		return 1
	}
	sum := 0.0
	for _, seconds := range p {
		sum += seconds
	}
	return sum / float64(len(p))
}

// with returns the pace after another run, and whether it is worth storing. Nodes that the
// workflow no longer has are dropped.
func (p pace) with(took pace, has func(node string) bool) (fresh pace, changed bool) {
	fresh = pace{}
	for node, seconds := range p {
		if has(node) {
			fresh[node] = seconds
		}
	}
	for node, seconds := range took {
		old, known := fresh[node]
		switch {
		case !has(node) || math.IsNaN(seconds) || seconds < 0:
		case !known && len(fresh) < maxPace:
			fresh[node] = round(seconds)
		case known:
			fresh[node] = round(old + paceStep*(seconds-old))
		}
	}
	const enough = 0.05 // of the whole run
	total := fresh.mean() * float64(len(fresh))
	for node, seconds := range fresh {
		if old, known := p[node]; !known || math.Abs(seconds-old) > enough*total {
			changed = true
		}
	}
	return fresh, changed || len(fresh) != len(p)
}

// round keeps milliseconds.
func round(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// paces are how long the nodes of each command take, as stored and as remembered.
type paces struct {
	store   *state.Store
	command func(name string) *workflow.Command
	logger  *slog.Logger

	// turn belongs to whoever uses byCommand.
	turn      *semaphore.Weighted
	byCommand map[string]pace
}

// of returns how long the nodes of a command usually take; empty if that is unknown.
func (ps *paces) of(ctx context.Context, command string) pace {
	if ps.turn.Acquire(ctx, 1) != nil {
		return pace{}
	}
	defer ps.turn.Release(1)
	return maps.Clone(ps.load(ctx, command))
}

// load reads it once; the caller has the turn.
func (ps *paces) load(ctx context.Context, command string) pace {
	if known, ok := ps.byCommand[command]; ok {
		return known
	}
	known := pace{}
	if err := ps.store.Get(ctx, paceKind, command, &known); isUnavailable(err) {
		return known
	}
	ps.byCommand[command] = known // bounded by the commands in bot.yaml
	return known
}

// learn adds a run to a command's pace. Losing one does no harm.
func (ps *paces) learn(ctx context.Context, command string, took pace) {
	c := ps.command(command)
	if c == nil {
		return
	}
	if ps.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer ps.turn.Release(1)
	fresh, changed := ps.load(ctx, command).with(took, c.Has)
	if !changed {
		return
	}
	ps.byCommand[command] = fresh
	if err := ps.store.Put(ctx, paceKind, command, fresh, paceKeep); err != nil {
		ps.logger.Debug("cannot note how long nodes take", "error", err)
	}
}

// makes is what the request's workflow makes, "" for words.
func (j *job) makes() platform.Media {
	c := j.r.o.Command(j.rec.Command)
	if c == nil {
		return platform.Photo
	}
	switch c.Makes() {
	case workflow.Films:
		return platform.Video
	case workflow.Sounds:
		return platform.Audio
	case workflow.Sentences:
		return ""
	case workflow.Pictures:
	}
	if j.rec.Args.AsFile {
		return platform.Document
	}
	return platform.Photo
}
