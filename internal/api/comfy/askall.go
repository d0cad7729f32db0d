package comfy

import (
	"context"
	"net/url"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// surveys answers the routes whose answers lie with the instances: it asks the
// primary or all of them, and joins what they say.
type surveys struct{ shared }

// askAll is [api.AskAll] for every connected ComfyUI, the primary first.
func (s surveys) askAll(ctx context.Context, path string, query url.Values) (good []pyjson.Value, reached bool) {
	return api.AskAll(ctx, s.hub().Instances.Clients(), path, query)
}
