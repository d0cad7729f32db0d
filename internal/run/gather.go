package run

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/split"
)

// errStalled says that a part has waited for too long.
var errStalled = errors.New("a part of it found no instance in time")

// outputsOf returns the outputs of a finished run with the hub's names, those of all its parts.
func (r collecting) outputsOf(ctx context.Context, entry comfyui.Entry) ([]byte, result) {
	j := r.Job()
	switch {
	case j.Parent != "": // the job's own run gives the names, in the order of the batch
		return entry.Outputs, result{}
	case r.division == nil && dividing(r).isPart(entry.Graph):
		return nil, dividing(r).undivide(ctx, "its parts are unknown")
	case r.division == nil:
		return r.nameOutputs(ctx, entry.Outputs)
	case r.wish != wanted:
		return nil, r.cancelledEnd()
	case r.division.blamed(entry):
		return nil, dividing(r).undivide(ctx, "it could not be split")
	case r.ending(nil, entry, nil).state != job.Done && r.stop.cause != partUnwell:
		return r.nameOutputs(ctx, entry.Outputs)
	}
	return r.division.gather(ctx, entry.Outputs)
}

// isPart reports whether the instance was given a part of the graph: the queue may have lost that
// the job was split, or this hub's version would split it otherwise.
func (r dividing) isPart(graph []byte) bool {
	node := []byte(`"` + split.Node)
	return len(r.Job().Parts) > 0 || bytes.Contains(graph, node) && !bytes.Contains(r.body.Prompt, node)
}

// undivide has the job run as a whole.
func (r dividing) undivide(ctx context.Context, reason string) result {
	err := r.retry(ctx, "run as a whole", func(ctx context.Context) error { return r.d.Queue.Unsplit(ctx, r.Lease()) })
	switch {
	case errors.Is(err, queue.ErrCancelled):
		return r.cancelledEnd()
	case err != nil:
		return result{kind: dropped}
	}
	return result{kind: excused, cause: Results, reason: reason + "; it runs as a whole"}
}

// gather waits for the other parts, and returns the outputs of all. An end of one that is none of
// the outputs is the end of the job.
func (v *division) gather(ctx context.Context, first []byte) ([]byte, result) {
	ends, res := v.await(ctx)
	if res.kind != undecided {
		return nil, res
	}
	raw := [][]byte{first}
	for _, end := range ends {
		entry, ok := comfyui.ParseEntry(end.Entry)
		if !ok || end.State != job.Done {
			return nil, v.fails(ctx, end.State, entry)
		}
		raw = append(raw, entry.Outputs)
	}
	if _, err := split.Merge(v.parts, raw); err != nil {
		return nil, dividing{v.r}.undivide(ctx, err.Error())
	}
	var named [][]byte
	if named, res = v.name(ctx, ends, raw); res.kind != undecided {
		return nil, res
	}
	all, err := split.Merge(v.parts, named)
	if err != nil {
		return nil, dividing{v.r}.undivide(ctx, err.Error())
	}
	return all, result{}
}

// await waits until the other parts have ended, or one has not ended well.
func (v *division) await(ctx context.Context) ([]queue.PartEnd, result) {
	var ends []queue.PartEnd // written by work that may outlast this call
	res, err := collecting{v.r}.meanwhile(ctx, "waiting for the parts of a run", func(ctx context.Context) (err error) {
		ends, err = v.wait(ctx)
		return err
	})
	switch {
	case res.kind != undecided:
		return nil, res
	case errors.Is(err, errStalled):
		return nil, dividing{v.r}.undivide(ctx, err.Error())
	case ctx.Err() != nil:
		return nil, result{kind: dropped}
	case err != nil:
		return nil, result{kind: crashed}
	}
	return ends, result{}
}

// partTick is how often the parts are looked at although nobody says that one has ended.
const partTick = 2 * time.Second

func (v *division) wait(ctx context.Context) ([]queue.PartEnd, error) {
	q := v.r.d.Queue
	for trouble := (retry.Trouble{}); ; {
		ends, err := q.PartEnds(ctx, v.keys())
		if err == nil {
			unwell := slices.IndexFunc(ends, isUnwell)
			switch {
			case unwell >= 0:
				return ends[unwell : unwell+1], nil
			case !slices.ContainsFunc(ends, func(e queue.PartEnd) bool { return !e.State.Ended() }):
				return ends, nil
			case slices.ContainsFunc(ends, func(e queue.PartEnd) bool { return e.State == "" }):
				err = v.ensure(ctx) // Redis has lost one
			case slices.ContainsFunc(ends, v.stalled):
				return nil, errStalled
			}
		}
		if err != nil && trouble.IsNews(err) {
			v.r.log.Warn("cannot look for the parts of a run yet, will try again", "error", err)
		}
		select {
		case <-v.r.partEnded:
		case <-time.After(partTick):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func isUnwell(e queue.PartEnd) bool { return e.State.Ended() && e.State != job.Done }

// look stops the run if another part has not ended well. The division may be nil.
func (v *division) look(ctx context.Context) {
	if v == nil || v.r.wish != wanted || v.r.stop.cause != notStopped {
		return
	}
	ends, err := v.r.d.Queue.PartEnds(ctx, v.keys())
	if err == nil && slices.ContainsFunc(ends, isUnwell) { // else the end of the run finds it
		v.r.stop = stop{cause: partUnwell, at: time.Now(), node: v.r.node}
		v.r.interrupt(ctx)
	}
}

// stalled reports whether a part has been waiting as long as a job waits for an instance.
func (v *division) stalled(e queue.PartEnd) bool {
	d := v.r.d
	return e.State == job.Queued && d.Queue.Clock().Now().Sub(time.UnixMilli(e.CreatedAt)) > d.Settings().UnrunnableTimeout
}

// fails ends the job as one of its parts has ended.
func (v *division) fails(ctx context.Context, state job.State, entry comfyui.Entry) result {
	r := v.r
	switch {
	case state == job.Cancelled: // at its instance, by hand
		return r.cancelledEnd()
	case entry.End != comfyui.TypeExecutionError || v.blamed(entry):
		return dividing{r}.undivide(ctx, "a part of it has no end")
	}
	end := v.hide([]byte(`{"type": "` + entry.End + `", "data": ` + string(entry.EndData) + `}`))
	return ownEnding(r.Job(), r.body, job.Failed, end, time.Now())
}

// name gives the outputs of all parts their names at the hub, in the order of the batch and one
// right after the other, and waits for the files of the other parts.
func (v *division) name(ctx context.Context, ends []queue.PartEnd, raw [][]byte) ([][]byte, result) {
	r := v.r
	first, res := collecting{r}.nameOutputs(ctx, raw[0])
	if res.kind != undecided {
		return nil, res
	}
	named, part := [][]byte{first}, 0
	files := make([]*outputs, len(ends))
	for n := range files {
		files[n] = newOutputs(r)
		r.files.join(files[n])
	}
	res, err := collecting{r}.meanwhile(ctx, "fetching the files of the parts", func(ctx context.Context) error {
		for n, end := range ends {
			part = n
			output, err := v.nameOf(ctx, files[n], end.Instance, raw[n+1])
			if err != nil {
				return err
			}
			named = append(named, output)
		}
		for n := range files {
			part = n
			if err := files[n].settle(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case res.kind != undecided:
		return nil, res
	case err == nil:
		return named, result{}
	case ctx.Err() != nil:
		return nil, result{kind: dropped}
	}
	if err := r.retry(ctx, "make a part again", func(ctx context.Context) error {
		return r.d.Queue.Redo(ctx, r.Lease(), v.others[part].Key)
	}); err != nil {
		return nil, result{kind: dropped}
	}
	return nil, collecting{r}.settled(ctx, err)
}

// nameOf is outputs.name for a part, whose instance may be away for a while.
func (v *division) nameOf(ctx context.Context, files *outputs, at string, raw []byte) ([]byte, error) {
	d, began := v.r.d, time.Now()
	for pauses := retry.New(100*time.Millisecond, 2*time.Second); ; {
		if files.part = d.Links.Get(at); files.part != nil {
			break
		}
		if time.Since(began) > d.Files.Patience() {
			return nil, errors.New("the instance of a part is gone")
		}
		if !pauses.Wait(ctx) {
			return nil, ctx.Err()
		}
	}
	return files.name(ctx, raw, false, func(conn *instance.Link) { files.part = conn })
}

// blamed reports whether a run has failed at the inserted node.
func (v *division) blamed(entry comfyui.Entry) bool {
	end := comfyui.Message{Data: entry.EndData}
	return entry.End == comfyui.TypeExecutionError && end.String("node_id") == v.plan.Node
}

// planted reports whether a message is about the inserted node alone, which the client does not
// know. The division may be nil.
func (v *division) planted(m comfyui.Message) bool { return v != nil && m.Node == v.plan.Node }

// hide takes the inserted node out of a JSON text. The division may be nil.
func (v *division) hide(text []byte) []byte {
	if v == nil || !bytes.Contains(text, []byte(v.plan.Node)) {
		return text
	}
	value, err := pyjson.Parse(text)
	if err != nil {
		return text
	}
	return pyjson.Marshal(without(value, v.plan.Node))
}

// without returns a value without the members and items of a name.
func without(v pyjson.Value, name string) pyjson.Value {
	switch v := v.(type) {
	case *pyjson.Object:
		left := &pyjson.Object{}
		for key, member := range v.All() {
			if key != name {
				left.Set(key, without(member, name))
			}
		}
		return left
	case pyjson.Array:
		left := make(pyjson.Array, 0, len(v))
		for _, item := range v {
			if item != pyjson.Value(pyjson.String(name)) {
				left = append(left, without(item, name))
			}
		}
		return left
	}
	return v
}
