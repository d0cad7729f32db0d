package hub

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// routes are what the hub answers itself. Each exists bare and under /api.
// Any other path goes to an instance.
func (h *Hub) routes() *api.Router {
	t := &api.Router{}
	t.Both("GET /ws", h.getSocket)
	t.Both("GET /prompt", h.getPrompt)
	t.Both("POST /prompt", h.postPrompt)
	t.Both("GET /queue", h.getQueue)
	t.Both("POST /queue", h.postQueue)
	t.Both("GET /history", h.getHistory)
	t.Both("POST /history", h.postHistory)
	t.Both("GET /history/*", h.getHistoryOf)
	t.Both("POST /interrupt", h.postInterrupt)
	t.Both("GET /view", h.getView)
	t.Both("POST /upload/image", h.postUpload)
	t.Both("POST /upload/mask", h.postMask)
	t.Both("GET /object_info", h.getObjectInfo)
	t.Both("GET /object_info/*", h.getObjectInfoOf)
	t.Both("GET /system_stats", h.getSystemStats)
	t.Both("GET /features", h.getFeatures)
	t.Both("GET /embeddings", h.getUnion)
	t.Both("GET /models", h.getUnion)
	t.Both("GET /models/*", h.getUnion)
	t.Both("POST /free", h.postFree)
	t.Both("GET /view_metadata/*", h.getFromAny)
	t.Both("GET /experiment/models", h.getModelFolders)
	t.Both("GET /experiment/models/*", h.getModelFolder)
	t.Both("GET /experiment/models/preview/*/*/**", h.getFromAny)
	t.Both("GET /extensions", h.getKnown("[]"))
	t.Both("GET /i18n", h.getKnown("{}"))
	t.Both("GET /workflow_templates", h.getKnown("{}"))
	t.Both("GET /global_subgraphs", h.getKnown("{}"))
	t.Both("GET /global_subgraphs/*", h.getSettled("null"))
	t.Both("GET /node_replacements", h.getKnown("{}"))
	// Bare only.
	t.Handle("GET /internal/logs", h.getLogs)
	t.Handle("GET /internal/logs/raw", h.getLogs)
	t.Handle("PATCH /internal/logs/subscribe", h.patchLogs)
	t.Handle("GET /internal/folder_paths", h.getKnown("{}"))
	t.Handle("GET /internal/files/*", h.getFolder)
	h.addAssets(t)
	t.Both("PUT "+heldPath+"*", h.putHeld)
	t.Both("GET "+heldPath+"*", h.getHeld)
	// As written, and once more below /api; there is no bare /jobs.
	t.Both("GET /api/jobs", h.getComfyJobs)
	t.Both("POST /api/jobs/cancel", h.postComfyJobsCancel)
	t.Both("GET /api/jobs/*", h.getComfyJob)
	t.Both("POST /api/jobs/*/cancel", h.postComfyJobCancel)
	return t
}

// Mount adds the routes of another room of the API, which are tried before
// ComfyUI's. It must be called before the first request.
func (h *Hub) Mount(routes *api.Router) { h.mounted = routes }

// Table has ComfyUI's routes. Rooms that answer some of them add theirs before
// the first request.
func (h *Hub) Table() *api.Router { return h.table }

// Requests reads the requests of all rooms.
func (h *Hub) Requests() *api.Requests { return h.requests }

// Serve answers one request of ComfyUI's HTTP and WebSocket API, or of the
// hub's own under /hub/.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, v api.Visitor) {
	w.Header().Set(comfyui.HubHeader, Version)
	if !h.started.Load() {
		api.WriteError(w, api.Error{
			Status: http.StatusServiceUnavailable, Kind: "starting",
			Message: "The hub is starting", RetryAfter: 1,
		})
		return
	}
	path, noPath := aiohttp.ReadPath(r.URL)
	if noPath == nil {
		r = api.WithPath(r, path)
	}
	if v.CORS != "" {
		w = api.WithCORS(w, v.CORS, h.dispatch.Version())
	}
	if api.RefuseStrangers(w, r, v) {
		return
	}
	if r.Method == http.MethodOptions {
		api.WriteEmpty(w, http.StatusOK)
		return
	}
	if noPath != nil {
		api.WriteNoPath(w, r)
		return
	}
	a := api.RequesterOf(r, v)
	h.recent.Confirm(a)
	if v.Proxied && !a.Login {
		h.proxied.Do(func() {
			h.log().Warn("requests come through a proxy that the server's trusted_proxies does not name: " +
				"clients that send neither a client id nor the hub's cookie cannot be told apart, so their interrupts and clears do nothing")
		})
	}
	if api.RefuseLong(w, r, v, a) {
		return
	}
	arrived, err := h.intake.Guard(w, r, a.Share())
	if err != nil {
		w.Header().Set("Connection", "close")
		api.WriteBusy(w)
		return
	}
	defer arrived()
	if a.Login {
		h.logins.note()
	}
	w = api.Greet(w, r, v, &a)
	own, values, allowed := h.mounted.Find(r.Method, path)
	if own != nil {
		own(w, r, a, values)
		return
	}
	if allowed != nil {
		api.WriteNotAllowed(w, api.AllowHeader(allowed))
		return
	}
	handler, values, allowed := h.table.Find(r.Method, path)
	switch {
	case handler != nil:
		handler(w, r, a, values)
	case allowed == nil:
		h.forward(w, r, a, path)
	case api.IsInternal(path):
		api.WriteNotAllowed(w, api.Listed(allowed))
	case api.IsRead(r):
		api.WriteNotFound(w, r) // as ComfyUI's catch-all static route does
	default:
		api.WriteNotAllowed(w, api.AllowHeader(allowed))
	}
}

// ignoreNotFound treats a job that is not there as nothing to do.
func ignoreNotFound(err error) error {
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	}
	return err
}
