package hub

import (
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// forward answers a request that is no route of the hub: a page, a file of an
// extension, a call of a custom node. Pages come from the hub's own copy of the
// web interface or from the primary; all else goes to the instance that is the
// client's, see sticky.
func (h *Hub) forward(w http.ResponseWriter, r *http.Request, a api.Requester, path aiohttp.Path) {
	if api.IsRead(r) && isHashed(path) {
		w = keptByBrowsers(w)
	}
	switch {
	case api.IsInternal(path):
		api.WriteText(w, http.StatusNotFound, "404: Not Found")
		return
	case path.Climbs(), strings.HasPrefix(path.String(), "//"):
		// An instance's address may have a path of its own, which ".." would
		// leave.
		api.WriteNoPath(w, r)
		return
	case h.isPrivate(path):
		api.WriteNotFound(w, r)
		return
	case h.serveFrontend(w, r, path):
		return
	case !h.mayPass(w, r, a, path):
		return
	}
	client := h.sticky(a)
	if isPage(r, path) {
		client = h.dispatch.Primary()
	}
	switch {
	case client != nil:
		h.passCall(client, w, r, a)
	case isIndex(r, path):
		writeWaiting(w, r)
	case needsBuildFile(r, path) && h.Settings().Frontend == "":
		h.serveBuildFile(w, r)
	default:
		api.WriteNotFound(w, r) // no instance has the path
	}
}

// passOn lets one instance answer.
func (h *Hub) passOn(client *comfyui.Client, w http.ResponseWriter, r *http.Request) {
	h.passTo(client, w, r, api.PathOf(r), nil)
}

func (h *Hub) passTo(client *comfyui.Client, w http.ResponseWriter, r *http.Request, path aiohttp.Path, aliases []comfyui.Alias) {
	if !api.IsRead(r) {
		// It can be the upload of a model, of which there are as many kinds as
		// node packs that have one.
		defer h.dispatch.Doubt(client)
	}
	client.Forward(w, r, path, aliases, func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() != nil {
			return // the visitor has gone
		}
		h.log().Debug("an instance did not answer", "error", err)
		switch {
		case isIndex(r, api.PathOf(r)):
			writeWaiting(w, r)
		case needsBuildFile(r, api.PathOf(r)):
			h.serveBuildFile(w, r)
		default:
			api.WriteNoInstance(w)
		}
	})
}

// copyAnswer passes an instance's answer on. Its headers are only those that
// may pass, see package comfyui.
func copyAnswer(w http.ResponseWriter, resp *http.Response) {
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the visitor may be gone
}
