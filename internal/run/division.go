package run

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

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
	// shortest is how long a whole run must take for its batch to be split: each part has to be given
	// out, and its files fetched.
	shortest = 2 * time.Second
	// largestSplit is the largest prompt that is split, in bytes: each part is stored with all of it,
	// beyond what its tenant may have waiting.
	largestSplit = 1 << 20
)

// division is a run whose batch several instances make. The run makes the first part, and jobs of
// their own the others: whatever can happen to a job can happen to them. Methods that say so may be
// called on nil, for a run that makes the whole.
type division struct {
	r     *Run
	plan  split.Plan
	parts []split.Part
	// class is the one of the jobs, and others are these jobs.
	class  string
	others []queue.Part
}

// divide decides whether a run makes the whole batch or a part, and has the other parts made. What
// was decided for an earlier run stands: the others may be made already.
func (r dividing) divide(ctx context.Context) result {
	j := r.Job()
	again := len(j.Parts) > 0
	switch {
	case j.Parent != "" || j.Whole:
		return result{}
	case again:
		r.division = r.divided(r.conn.Abilities().Core)
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
		return result{}
	case errors.Is(err, queue.ErrAnswered):
		r.division = nil
		return result{}
	case errors.Is(err, queue.ErrCancelled):
		return r.cancelledEnd()
	}
	return result{kind: dropped}
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
	if len(j.Parts) == 0 {
		return nil
	}
	plan, ok := split.Find(r.body.Prompt, r.body.Outputs, core)
	if !ok {
		return nil
	}
	v, err := r.inParts(plan, len(j.Parts)+1)
	if err != nil || v == nil || len(v.others) != len(j.Parts) || v.others[0].Key != j.Parts[0] {
		return nil
	}
	return v
}

// worthDividing is the division of a job that has not run yet; nil if it had better run whole.
func (r dividing) worthDividing() *division {
	j, s := r.Job(), r.d.Settings()
	// The client may be given an instance's refusal of the whole only.
	if !s.Split || !r.alone || r.conn.Kind == fleet.KindOverflow || j.Ahead || j.Attempts > 1 || j.DoorUntil > 0 || len(r.body.Inputs) > 0 || sizeOf(r.body) > largestSplit || r.d.Queue.Limited(j.Tenant) {
		return nil
	}
	takes := r.d.Durations.Estimate(j.Shape, r.d.Reports.Gpu(r.conn.Name))
	if !takes.Certain() || takes.Ran < shortest || refusesSplit(r.body.Extra) {
		return nil
	}
	plan, ok := split.Find(r.body.Prompt, r.body.Outputs, r.conn.Abilities().Core)
	if !ok {
		return nil
	}
	v, err := r.inParts(plan, 1+r.helpers(takes))
	if err != nil {
		r.log.Warn("cannot split a batch", "error", err)
		return nil
	}
	return v
}

// sizeOf is the size of a prompt, in bytes.
func sizeOf(b job.Body) int {
	return len(b.Prompt) + len(b.Extra) + len(b.Targets) + len(b.Other) + len(b.Requires)
}

// refusesSplit reports whether the prompt asks to be made as a whole.
func refusesSplit(extra []byte) bool {
	v, err := pyjson.Parse(extra)
	o, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return false
	}
	wish, _ := o.Object("comfyhub").Get("split")
	return wish == pyjson.Bool(false)
}

// helpers counts the idle instances that would make a part as this run's would.
func (r dividing) helpers(takes schedule.Estimate) (n int) {
	needs, err := partNeeds(r.body.Requires)
	if err != nil || needs.Unchecked || needs.Secrets {
		return 0
	}
	j, gpu := r.Job(), r.d.Reports.Gpu(r.conn.Name)
	idle, infos := r.d.Elsewhere.Idle()
	for k, i := range idle {
		warm := !slices.ContainsFunc(r.models, func(model string) bool { return !slices.Contains(i.Loaded, model) })
		if i.Rests || i.GPU != nil || !schedule.MayUse(i.Tenants, j.Tenant) || r.d.Reports.Gpu(i.Name) != gpu || !warm && 2*takes.Load > takes.Ran {
			continue
		}
		if len(infos[k].Satisfies(needs)) == 0 && AllCore(infos[k], needs) {
			n++
		}
	}
	return n
}

// AllCore reports whether the classes that parts rely on are ComfyUI's own at an instance.
func AllCore(info *catalog.Info, needs catalog.Requirements) bool {
	return !slices.ContainsFunc(needs.Classes, func(class string) bool { return split.Relies(class) && !info.Core(class) })
}

// partNeeds returns what a part of a job needs, given what the job does.
func partNeeds(requires []byte) (catalog.Requirements, error) {
	needs, err := catalog.DecodeRequirements(requires)
	if err != nil {
		return needs, err
	}
	needs.Part = true
	if at, there := slices.BinarySearch(needs.Classes, split.Inserted); !there {
		needs.Classes = slices.Insert(needs.Classes, at, split.Inserted)
	}
	return needs, nil
}

// inParts plans k parts; nil if there would be one.
func (r dividing) inParts(plan split.Plan, k int) (*division, error) {
	parts, err := plan.Parts(k)
	if err != nil || len(parts) < 2 {
		return nil, err
	}
	needs, err := partNeeds(r.body.Requires)
	if err != nil {
		return nil, err
	}
	v := &division{r: r.Run, plan: plan, parts: parts, class: needs.Signature()}
	parent, err := uuid.Parse(r.Job().Key)
	if err != nil {
		return nil, err
	}
	for n, part := range parts[1:] {
		graph, err := pyjson.Parse(part.Graph)
		if err != nil {
			return nil, err
		}
		v.others = append(v.others, queue.Part{
			Key:   uuid.NewSHA1(parent, []byte(strconv.Itoa(n+1)+"/"+strconv.Itoa(len(parts)))).String(),
			Shape: schedule.Shape(graph),
			Body: job.Body{
				Prompt: part.Graph, Extra: r.body.Extra, Outputs: r.body.Outputs, Targets: r.body.Targets, Other: r.body.Other, Requires: needs.Encode(),
			},
		})
	}
	return v, nil
}

// keys are those of the other parts' jobs.
func (v *division) keys() []string {
	keys := make([]string, len(v.others))
	for n, part := range v.others {
		keys[n] = part.Key
	}
	return keys
}

// graph is what the run's instance is given.
func (r *Run) graph() []byte {
	if r.division == nil {
		return r.body.Prompt
	}
	return r.division.parts[0].Graph
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
