package run

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
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
	case r.division == nil && (len(j.Parts) > 0 || entry.Mark.Part): // the queue may have lost that it was split, or this hub's version would split it otherwise
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
	return r.division.gather(ctx, entry)
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

// mostRedone bounds how often parts of a run are made again because their files are gone.
const mostRedone = 3

// gather waits for the other parts, and returns the outputs of all. An end of one that is none of
// the outputs is the end of the job. A part whose files are gone is made again.
func (v *division) gather(ctx context.Context, first comfyui.Entry) ([]byte, result) {
	fetched := make([]*outputs, len(v.parts))
	fetched[0] = v.r.files
	for range 1 + mostRedone {
		all, again, res := v.assemble(ctx, first, fetched)
		if !again {
			return all, res
		}
	}
	return nil, dividing{v.r}.undivide(ctx, "the files of its parts cannot be fetched")
}

// assemble is gather as long as no part must be made again. fetched are the files of the parts that it
// has already.
func (v *division) assemble(ctx context.Context, first comfyui.Entry, fetched []*outputs) (all []byte, again bool, res result) {
	ends, res := v.await(ctx)
	if res.kind != undecided {
		return nil, false, res
	}
	raw, metas := [][]byte{first.Outputs}, [][]byte{first.Meta}
	for _, end := range ends {
		entry, ok := comfyui.ParseEntry(end.Entry)
		if !ok || end.State != job.Done {
			return nil, false, v.fails(ctx, end.State, entry)
		}
		raw, metas = append(raw, entry.Outputs), append(metas, entry.Meta)
	}
	pieces, err := v.plan.Pieces(v.parts, raw)
	if err != nil {
		return nil, false, dividing{v.r}.undivide(ctx, err.Error())
	}
	if again, res = v.name(ctx, ends, pieces, fetched); again || res.kind != undecided {
		return nil, again, res
	}
	all, err = v.plan.Join(v.parts, pieces)
	if err != nil {
		return nil, false, dividing{v.r}.undivide(ctx, err.Error())
	}
	if v.meta, err = split.Union(metas); err != nil {
		v.meta = nil // servers before 2024-08 have none
	}
	return all, false, result{}
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

// name gives the pieces of all parts' outputs their names at the hub, in order and one right after the
// other, and waits for the files of the other parts. It reports whether a part is made again, since its
// files are gone.
func (v *division) name(ctx context.Context, ends []queue.PartEnd, pieces []split.Piece, fetched []*outputs) (again bool, res result) {
	r, part := v.r, 0
	at := []string{r.conn.Name}
	for n, end := range ends {
		at = append(at, end.Instance)
		if fetched[n+1] == nil {
			fetched[n+1] = newOutputs(r)
			r.files.join(fetched[n+1])
		}
	}
	res, err := collecting{r}.meanwhile(ctx, "fetching the files of the parts", func(ctx context.Context) (err error) {
		var named []job.FileRef
		for n := range pieces {
			part = pieces[n].Part
			if pieces[n].Outputs, err = v.nameOf(ctx, fetched[part], at[part], pieces[n].Outputs, named); err != nil {
				return err
			}
			for _, f := range comfyui.Files(pieces[n].Outputs) {
				named = append(named, f.Ref)
			}
		}
		for part = 1; part < len(fetched); part++ { // the run waits for its own
			if err := fetched[part].settle(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case res.kind != undecided:
		return false, res
	case err == nil:
		return false, result{}
	case ctx.Err() != nil:
		return false, result{kind: dropped}
	case part == 0:
		return false, result{kind: lost, cause: Results, reason: "its output files cannot be read: " + err.Error()}
	case errors.Is(err, files.ErrStorage), errors.Is(err, panics.ErrPanic): // so it would be with other files
		return false, collecting{r}.settled(ctx, err)
	case !v.redo(ctx, part, fetched[part], err):
		return false, result{kind: dropped}
	}
	fetched[part] = nil
	return true, result{}
}

// redo has a part made again whose files are gone, and reports whether the run is still this hub's.
func (v *division) redo(ctx context.Context, part int, gone *outputs, cause error) bool {
	r := v.r
	r.log.Warn("a part of a run is made again: its files are gone", "part", v.others[part-1].Key, "error", cause)
	if errors.Is(cause, files.ErrGone) && gone.part != nil {
		dropCache(ctx, gone.part) // it would name the files of its last run again
	}
	r.files.leave(gone)
	return r.retry(ctx, "make a part again", func(ctx context.Context) error {
		return r.d.Queue.Redo(ctx, r.Lease(), v.others[part-1].Key)
	}) == nil
}

// nameOf is outputs.name for a part, whose instance may be away for a while. The names follow those
// of the pieces before it.
func (v *division) nameOf(ctx context.Context, files *outputs, at string, raw []byte, after []job.FileRef) ([]byte, error) {
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
	return files.name(ctx, raw, unseen{after: after}, func(conn *instance.Link) { files.part = conn })
}

// blamed reports whether a run has failed at the inserted node.
func (v *division) blamed(entry comfyui.Entry) bool {
	end := comfyui.Message{Data: entry.EndData}
	return entry.End == comfyui.TypeExecutionError && v.plan.Inserted() != "" && end.String("node_id") == v.plan.Inserted()
}

// planted reports whether a message is about the inserted node alone, which the client does not
// know. The division may be nil.
func (v *division) planted(m comfyui.Message) bool {
	return v != nil && m.Node != "" && m.Node == v.plan.Inserted()
}

// hide takes the inserted node out of a JSON text. The division may be nil.
func (v *division) hide(text []byte) []byte {
	if v == nil || v.plan.Inserted() == "" || !bytes.Contains(text, []byte(v.plan.Inserted())) {
		return text
	}
	value, err := pyjson.Parse(text)
	if err != nil {
		return text
	}
	return pyjson.Marshal(without(value, v.plan.Inserted()))
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
