package comfy

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
)

// namingBody is a body that may name clients; it is not read as JSON alone.
var namingBody = intake.Class{Limit: comfyui.MaxNamingBody + 1}

// maxIntroduced bounds the clients that one call makes known to an instance.
const maxIntroduced = 4

// passCall lets an instance answer a call of a custom node. The node may answer
// later once more, with a message to a client id that the call named, so such
// clients are made known to the instance first. The call goes on with an id of
// the hub's in place of each, see [comfyui.Alias].
func (c *Room) passCall(to *comfyui.Client, w http.ResponseWriter, r *http.Request, a api.Requester) {
	path := api.PathOf(r)
	if isPage(r, path) {
		c.passTo(to, w, r, a, path, nil)
		return
	}
	n := call{query: comfyui.ForwardedQuery(api.RawQueryOf(r)), path: path}
	read := comfyui.MayNameClients(r)
	if read {
		body, done, ok := c.ReadBody(w, r, a, namingBody)
		if !ok {
			return
		}
		defer done()
		n.body = body
	}
	c.introduce(r.Context(), to, a, &n)
	r = api.WithQuery(r, n.query)
	if read {
		r.Header = r.Header.Clone()
		r.Header.Del("Content-Length") // net/http writes that of the body below
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(n.body)), int64(len(n.body))
	}
	c.passTo(to, w, r, a, n.path, n.aliases)
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
func (n *call) names(alias comfyui.Alias) bool {
	return alias.InQuery(n.query) != n.query || alias.InPath(n.path).String() != n.path.String() || !bytes.Equal(alias.InBody(n.body), n.body)
}

// introduce makes the clients known that a call names, by the usual keys or
// anywhere if they were met where the call comes from.
func (c *Room) introduce(ctx context.Context, to *comfyui.Client, a api.Requester, n *call) {
	candidates := comfyui.ClientsNamed(aiohttp.ParseQuery(n.query), n.body)
	for _, id := range c.Recent.Clients(a) {
		if !slices.Contains(candidates, id) {
			candidates = append(candidates, id)
		}
	}
	for _, id := range candidates {
		if len(n.aliases) == maxIntroduced || len(id) > api.MaxName || !n.names(comfyui.Alias{Client: id}) {
			continue
		}
		alias, ok := c.hub().Instances.Introduce(ctx, to, a.Tenant, id)
		if !ok {
			continue
		}
		n.aliases = append(n.aliases, alias)
		n.query, n.path, n.body = alias.InQuery(n.query), alias.InPath(n.path), alias.InBody(n.body)
	}
}
