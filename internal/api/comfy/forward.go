package comfy

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// Forward answers a request that is no route of any room: a page, a file of an
// extension, a call of a custom node. Pages come from the hub's own copy of the
// web interface or from the primary; all else goes to the instance that is the
// client's, see sticky.
func (c *Room) Forward(w http.ResponseWriter, r *http.Request, a api.Requester, path aiohttp.Path) {
	if api.IsRead(r) && webui.IsHashed(path.Decoded()) {
		w = keptByBrowsers(w)
	}
	switch {
	case c.serveFrontend(w, r, path):
		return
	case !c.mayPass(w, r, a, path):
		return
	}
	if isPart(r, path) {
		api.AsPage(w)
	}
	client := c.hub().Instances.ClientFor(a.Tenant, c.Recent.Clients(a))
	if isPage(r, path) {
		client = c.hub().Instances.Primary()
	}
	switch {
	case client != nil && c.serveKept(client, w, r, path):
	case client != nil && isIndex(r, path):
		c.passCall(client, c.tellPage(client, w), r, a)
	case client != nil:
		c.passCall(client, w, r, a)
	case isIndex(r, path):
		writeWaiting(w, r)
	case needsBuildFile(r, path) && c.hub().Settings.Frontend == "":
		c.serveBuildFile(w, r)
	default:
		api.WriteNotFound(w, r) // no instance has the path
	}
}

// relayCost is the memory that a socket to an instance takes here: a buffer for each
// direction, those of two connections, and stacks. 170 idle ones to a node behind an agent
// took 117 KiB each.
const relayCost = 128 << 10

// passTo lets one instance answer, on a path and with aliases in place of the
// client ids that the call names. A socket counts as one of its owner's.
func (c *Room) passTo(client *comfyui.Client, w http.ResponseWriter, r *http.Request, a api.Requester, path aiohttp.Path, aliases []comfyui.Alias) {
	held := budget.From(r.Context())
	held.Relay() // nothing of the body stays here
	if upgrades(r) {
		ctx, release, err := c.hub().Streams.Sockets.Hold(r.Context(), stream.Ident{Requester: a.Requester(), Network: a.Network})
		if err != nil {
			refuseSocket(c.Requests, w, err)
			return
		}
		defer release()
		if !held.Await(ctx, budget.Memory, relayCost) {
			c.Fail(w, r, budget.ErrFull)
			return
		}
		r = r.WithContext(ctx)
	}
	if !api.IsRead(r) {
		// It can be the upload of a model, of which there are as many kinds as
		// node packs that have one.
		defer c.hub().Instances.Doubt(client)
	}
	client.Forward(w, r, path, aliases, func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() != nil {
			return // the visitor has gone
		}
		c.Log().Debug("an instance did not answer", "error", err)
		switch {
		case isIndex(r, api.PathOf(r)):
			writeWaiting(w, r)
		case needsBuildFile(r, api.PathOf(r)):
			c.serveBuildFile(w, r)
		default:
			api.WriteNoInstance(w)
		}
	})
}
