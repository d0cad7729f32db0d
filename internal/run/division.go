package run

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/split"
)

const (
	// largestSplit is the largest prompt that is split, in bytes: each part is stored with all of it,
	// beyond what its tenant may have waiting.
	largestSplit = 1 << 20
)

// division is a run whose graph several instances make: each some pictures of a batch, or some
// outputs. The run makes the first part, and jobs of their own the others: whatever can happen to a job
// can happen to them. Methods that say so may be called on nil, for a run that makes the whole.
type division struct {
	r     *Run
	plan  plan
	parts []split.Part
	// class is the one of the jobs, and others are these jobs.
	class  string
	others []queue.Part
	// meta is the member meta of the history entry, put together from those of all parts; nil before.
	meta []byte
}

// plan is how parts make a whole.
type plan interface {
	// Inserted is the id of the node that each part has and the graph has not; empty for none.
	Inserted() string
	// Pieces takes apart what the parts have put out, in the order in which the files get their names,
	// and Join puts the pieces together. The error is [split.ErrOutputs].
	Pieces(parts []split.Part, outputs [][]byte) ([]split.Piece, error)
	Join(parts []split.Part, pieces []split.Piece) ([]byte, error)
}

// divide decides whether a run makes the whole or a part, and has the other parts made. What
// was decided for an earlier run stands: the others may be made already.
func (r dividing) divide(ctx context.Context) result {
	j := r.Job()
	again := len(j.Parts) > 0
	switch {
	case j.Parent != "" || j.Whole:
		return result{}
	case again:
		r.division = r.divided(r.conn.Abilities().Core)
		if mixed, err := r.mixes(ctx); err != nil {
			return result{kind: dropped}
		} else if mixed {
			r.division = nil
		}
	default:
		r.division = r.worthDividing()
	}
	if r.division == nil && !again {
		return result{}
	}
	err := r.retry(ctx, "split", r.splitting())
	switch {
	case err == nil && r.division == nil:
		r.unsplit()
		return result{}
	case err == nil:
		r.log.Info("job is made in parts", "parts", len(r.division.parts), "outputs_apart", r.division.isApart())
		return result{}
	case errors.Is(err, queue.ErrAnswered):
		r.division = nil
		return result{}
	case errors.Is(err, queue.ErrCancelled):
		return r.cancelledEnd()
	}
	return result{kind: dropped}
}

// mixes reports whether an instance with another GPU than this one's has made a part of the division, or
// is making one: it rounds otherwise.
func (r dividing) mixes(ctx context.Context) (mixed bool, err error) {
	if r.division == nil {
		return false, nil
	}
	err = r.retry(ctx, "look where the parts are made", func(ctx context.Context) error {
		ends, err := r.d.Queue.PartEnds(ctx, r.division.keys())
		mixed = slices.ContainsFunc(ends, func(e queue.PartEnd) bool {
			_, known := r.d.Fleet.Instance(e.Instance)
			return known && e.State != job.Queued && r.d.Reports.Gpu(e.Instance) != r.d.Reports.Gpu(r.conn.Name)
		})
		return err
	})
	return mixed, err
}

// splitting returns the change of the queue that notes how the job is made.
func (r dividing) splitting() func(context.Context) error {
	if r.division == nil {
		return func(ctx context.Context) error { return r.d.Queue.Unsplit(ctx, r.Lease()) }
	}
	return r.division.ensure
}

// ensure makes the jobs of the other parts that are not there.
func (v *division) ensure(ctx context.Context) error {
	return v.r.d.Queue.Split(ctx, v.r.Lease(), v.class, v.others)
}

// divided is the division of a job that was split before; nil if it cannot be split like that here.
func (r dividing) divided(core func(class string) bool) *division {
	j := r.Job()
	parent, err := uuid.Parse(j.Key)
	if len(j.Parts) == 0 || err != nil {
		return nil
	}
	var v *division
	if sets, ok := outputsOfKeys(parent, j.Parts); ok {
		v = r.again(parent, sets, core)
	} else if batch, ok := split.Find(r.body.Prompt, r.body.Outputs, core); ok {
		v, err = r.inBatches(parent, batch, len(j.Parts)+1)
	}
	if err != nil || v == nil || !slices.Equal(v.keys(), j.Parts) {
		return nil
	}
	return v
}

// again is the division of a job whose other parts make these outputs; nil if it cannot be split like
// that here.
func (r dividing) again(parent uuid.UUID, others []split.Outputs, core func(class string) bool) *division {
	b, ok := split.FindBranches(r.body.Prompt, r.body.Outputs, core)
	if !ok {
		return nil
	}
	v, err := r.inOutputs(parent, b, slices.Concat([]split.Outputs{b.Rest(others)}, others))
	if err != nil {
		return nil
	}
	return v
}

// worthDividing is the division of a job that has not run yet; nil if it had better run whole.
func (r dividing) worthDividing() *division {
	j, s, asked := r.Job(), r.d.Settings(), wishedParts(r.body.Extra)
	// The client may be given an instance's refusal of the whole only.
	if !s.Split || asked.most < 2 || !r.alone || r.conn.Kind == fleet.KindOverflow || j.Ahead || j.Attempts > 1 || j.DoorUntil > 0 || sizeOf(r.body) > largestSplit || r.d.Queue.Limited(j.Tenant) {
		return nil
	}
	takes := r.d.Durations.Estimate(j.Shape, r.d.Reports.Gpu(r.conn.Name))
	parent, err := uuid.Parse(j.Key)
	if err != nil || asked.least > 0 && (!takes.Certain() || takes.Ran < asked.least) {
		return nil
	}
	core := r.conn.Abilities().Core
	var v *division
	if batch, ok := split.Find(r.body.Prompt, r.body.Outputs, core); ok {
		v, err = r.inBatches(parent, batch, min(asked.most, 1+len(r.helpers(takes, r.demandsOfBatch()))))
	} else if b, ok := split.FindBranches(r.body.Prompt, r.body.Outputs, core); ok {
		v, err = r.inOutputs(parent, b, r.shares(b, takes, asked))
	}
	if err != nil {
		r.log.Warn("cannot split a prompt", "error", err)
		return nil
	}
	return v
}

// sizeOf is the size of a prompt, in bytes.
func sizeOf(b job.Body) int {
	return len(b.Prompt) + len(b.Extra) + len(b.Targets) + len(b.Inputs) + len(b.Other) + len(b.Requires)
}

// partNeeds returns what a part of a job needs, given what the job does, and the classes of the nodes
// that only the part has.
func partNeeds(requires []byte, inserted ...string) (catalog.Requirements, error) {
	needs, err := catalog.DecodeRequirements(requires)
	if err != nil {
		return needs, err
	}
	needs.Part = true
	needs.Classes = slices.Compact(slices.Sorted(slices.Values(append(needs.Classes, inserted...))))
	return needs, nil
}

// inBatches plans k parts of a batch; nil if there would be one.
func (r dividing) inBatches(parent uuid.UUID, batch split.Plan, k int) (*division, error) {
	parts, err := batch.Parts(k)
	if err != nil || len(parts) < 2 {
		return nil, err
	}
	var keys []string
	for n := range parts[1:] {
		keys = append(keys, batchKey(parent, n+1, len(parts)))
	}
	return r.inParts(batch, parts, keys, r.demandsOfBatch(), split.Inserted)
}

// inOutputs plans parts that make some outputs each; nil if there would be one.
func (r dividing) inOutputs(parent uuid.UUID, b split.Branches, sets []split.Outputs) (*division, error) {
	parts := b.Parts(sets)
	if len(parts) < 2 {
		return nil, nil
	}
	var keys []string
	for _, set := range sets[1:] {
		keys = append(keys, outputsKey(parent, set))
	}
	return r.inParts(b, parts, keys, demandsOfOutputs(b))
}

// inParts is the division into some parts, all but the first of which are jobs with these keys.
func (r dividing) inParts(p plan, parts []split.Part, keys []string, d demands, inserted ...string) (*division, error) {
	needs, err := partNeeds(r.body.Requires, inserted...)
	if err != nil {
		return nil, err
	}
	r.demands.Store(&d)
	v := &division{r: r.Run, plan: p, parts: parts, class: needs.Signature()}
	for n, part := range parts[1:] {
		shape, err := shapeOfPart(part)
		if err != nil {
			return nil, err
		}
		body := job.Body{Prompt: part.Graph, Extra: r.body.Extra, Outputs: r.body.Outputs, Targets: r.body.Targets, Other: r.body.Other, Inputs: r.body.Inputs, Requires: needs.Encode()}
		if part.Outputs != nil {
			body.Outputs, body.Targets = part.Outputs, targetsOf(part)
		}
		v.others = append(v.others, queue.Part{Key: keys[n], Shape: shape, Body: body})
	}
	return v, nil
}

// targetsOf is partial_execution_targets for a part that makes some outputs.
func targetsOf(part split.Part) []byte { return pyjson.Marshal(pyjson.Strings(part.Outputs)) }

// shapeOfPart tells how long a part takes, without what it leaves out.
func shapeOfPart(part split.Part) (string, error) {
	text := part.Graph
	if part.Outputs != nil {
		var err error
		if text, err = split.Only(text, part.Outputs); err != nil {
			return "", err
		}
	}
	graph, err := pyjson.Parse(text)
	if err != nil {
		return "", err
	}
	return schedule.Shape(graph), nil
}

// keys are those of the other parts' jobs.
func (v *division) keys() []string {
	keys := make([]string, len(v.others))
	for n, part := range v.others {
		keys[n] = part.Key
	}
	return keys
}

// graph is what the run's instance is given, and targets is partial_execution_targets; nil for all
// outputs.
func (r dividing) graph() []byte {
	if r.division == nil {
		return r.body.Prompt
	}
	return r.division.parts[0].Graph
}

func (r dividing) targets() []byte {
	if r.division == nil || r.division.parts[0].Outputs == nil {
		return r.body.Targets
	}
	return targetsOf(r.division.parts[0])
}

// made is the graph of what a run that is not divided makes.
func (r dividing) made() []byte {
	if r.Job().Parent == "" || r.body.Targets == nil {
		return r.body.Prompt
	}
	if graph, err := split.Only(r.body.Prompt, r.body.Outputs); err == nil {
		return graph
	}
	return r.body.Prompt
}

// PartEnded tells the run of a job that one of its parts may have ended.
func (rs *Runs) PartEnded(key string) {
	if r := rs.Get(key); r != nil {
		select {
		case r.partEnded <- struct{}{}:
		default: // it is told already
		}
		r.mail.put(runEvent{kind: partHeard})
	}
}
