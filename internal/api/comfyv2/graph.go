package comfyv2

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/view"
)

// graphOf is the graph of a job, with the memory to parse it, which release gives back. The error
// may be hub.ErrNoJob.
func (o jobs) graphOf(ctx context.Context, a api.Requester, id string) (graph []byte, release func(), err error) {
	j, err := o.hub().Jobs.Look(ctx, a.Tenant, id)
	if err != nil {
		return nil, nil, err
	}
	graph = j.Body.Prompt
	size := int64(len(graph))
	if j.State.Ended() {
		size = j.Entry.Size()
	}
	if release, err = o.Intake.Reserve(ctx, a.Share(), 3*size); err != nil {
		return nil, nil, err
	}
	if j.State.Ended() {
		var raw []byte
		if raw, err = j.Entry.JSON(); err == nil {
			parsed, _ := comfyui.ParseEntry(raw)
			graph = parsed.Graph
		}
	}
	if err == nil && len(graph) == 0 {
		err = view.ErrNoJob
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return graph, release, nil
}
