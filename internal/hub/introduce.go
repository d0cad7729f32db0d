package hub

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// namingBody is a body that may name clients; it is not read as JSON alone.
var namingBody = intake.Class{Limit: comfyui.MaxNamingBody + 1}

// maxIntroduced bounds the clients that one call makes known to an instance.
const maxIntroduced = 4

// passCall lets an instance answer a call of a custom node. The node may answer
// later once more, with a message to a client id that the call named, so such
// clients are made known to the instance first. The call goes on with an id of
// the hub's in place of each, see [comfyui.Alias].
func (h *Hub) passCall(to *comfyui.Client, w http.ResponseWriter, r *http.Request, a api.Requester) {
	path := api.PathOf(r)
	if isPage(r, path) {
		h.passTo(to, w, r, path, nil)
		return
	}
	c := call{query: comfyui.ForwardedQuery(api.RawQueryOf(r)), path: path}
	read := comfyui.MayNameClients(r)
	if read {
		body, done, ok := h.requests.ReadBody(w, r, a, namingBody)
		if !ok {
			return
		}
		defer done()
		c.body = body
	}
	h.introduce(r.Context(), to, a, &c)
	r = api.WithQuery(r, c.query)
	if read {
		r.Header = r.Header.Clone()
		r.Header.Del("Content-Length") // net/http writes that of the body below
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	}
	h.passTo(to, w, r, c.path, c.aliases)
}

// call is what of a call may name clients.
type call struct {
	query string
	path  aiohttp.Path
	// body is nil where it is not looked at.
	body    []byte
	aliases []comfyui.Alias
}

// names reports whether an alias would stand in the call.
func (c *call) names(alias comfyui.Alias) bool {
	return alias.InQuery(c.query) != c.query || alias.InPath(c.path) != c.path || !bytes.Equal(alias.InBody(c.body), c.body)
}

// introduce makes the clients known that a call names, by the usual keys or
// anywhere if they were met where the call comes from.
func (h *Hub) introduce(ctx context.Context, to *comfyui.Client, a api.Requester, c *call) {
	candidates := comfyui.ClientsNamed(aiohttp.ParseQuery(c.query), c.body)
	for _, id := range h.recent.Clients(a) {
		if !slices.Contains(candidates, id) {
			candidates = append(candidates, id)
		}
	}
	for _, id := range candidates {
		k := stream.Key{Tenant: a.Tenant, Client: id}
		if len(c.aliases) == maxIntroduced || len(id) > api.MaxName || !c.names(comfyui.Alias{Client: id}) || !h.streams.Knows(ctx, k) {
			continue
		}
		alias, ok := h.dispatch.Introduce(ctx, to, k)
		if !ok {
			continue
		}
		c.aliases = append(c.aliases, alias)
		c.query, c.path, c.body = alias.InQuery(c.query), alias.InPath(c.path), alias.InBody(c.body)
	}
}
