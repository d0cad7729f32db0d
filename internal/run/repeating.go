package run

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// execute ends a job with a result that is there already, as ComfyUI does for a prompt all of whose
// nodes are in its cache.
func (r repeating) execute(ctx context.Context, found *Repeat) result {
	j := r.Job()
	body, err := r.d.Queue.Body(ctx, j.Key)
	preparation(r).takeBody(body)
	switch {
	case err != nil:
		return preparation(r).unreadable(ctx, err)
	case r.wish != wanted:
		return r.cancelledEnd()
	}
	r.d.Doors.of(j.Key).taken(ctx, nil)
	showing(r).openStream(ctx)
	now := time.Now()
	start, cached, success := comfyui.ExecutionStart(j.ID, now), comfyui.ExecutionCached(j.ID, found.nodes, now), comfyui.ExecutionSuccess(j.ID, now)
	parts := comfyui.EntryParts{
		Number: j.Number, ID: j.ID, Graph: body.Prompt, Extra: body.Extra, Outputs: body.Outputs, Success: true, Messages: onRecord(start, cached, success),
	}
	showing(r).send(stream.Other, "", start)
	showing(r).send(stream.Other, "", cached)
	pyjson.Members(found.outputs, func(node string, output []byte) {
		parts.Results = append(parts.Results, comfyui.EntryResult{Node: node, Output: output})
		showing(r).send(stream.Other, node, comfyui.Executed(j.ID, node, output))
	})
	r.files.have(found.files)
	return result{kind: jobEnded, state: job.Done, entry: comfyui.NewEntry(parts), messages: [][]byte{success}}
}

// have notes files that the hub has under the names that the run gives them.
func (o *outputs) have(refs []job.FileRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ref := range refs {
		o.names[ref] = ref
	}
}
