package hub

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// routes are what the hub answers itself. Each exists bare and under /api.
// Any other path goes to an instance.
func (h *Hub) routes() *router {
	t := &router{}
	t.both("GET /ws", h.getSocket)
	t.both("GET /prompt", h.getPrompt)
	t.both("POST /prompt", h.postPrompt)
	t.both("GET /queue", h.getQueue)
	t.both("POST /queue", h.postQueue)
	t.both("GET /history", h.getHistory)
	t.both("POST /history", h.postHistory)
	t.both("GET /history/*", h.getHistoryOf)
	t.both("POST /interrupt", h.postInterrupt)
	t.both("GET /view", h.getView)
	t.both("POST /upload/image", h.postUpload)
	t.both("POST /upload/mask", h.postMask)
	t.both("GET /object_info", h.getObjectInfo)
	t.both("GET /object_info/*", h.getObjectInfoOf)
	t.both("GET /system_stats", h.getSystemStats)
	t.both("GET /features", h.getFeatures)
	t.both("GET /embeddings", h.getUnion)
	t.both("GET /models", h.getUnion)
	t.both("GET /models/*", h.getUnion)
	t.both("GET /users", h.getUsers)
	t.both("POST /users", h.postUsers)
	t.both("GET /settings", h.getSettings)
	t.both("POST /settings", h.postSettings)
	t.both("GET /settings/*", h.getSetting)
	t.both("POST /settings/*", h.postSetting)
	t.both("GET /userdata", h.getUserdata)
	t.both("GET /v2/userdata", h.getUserdataV2)
	t.both("GET /userdata/*", h.getUserfile)
	t.both("POST /userdata/*", h.postUserfile)
	t.both("DELETE /userdata/*", h.deleteUserfile)
	t.both("POST /userdata/*/move/*", h.postUserfileMove)
	t.both("POST /free", h.postFree)
	t.both("GET /view_metadata/*", h.getFromAny)
	t.both("GET /experiment/models", h.getModelFolders)
	t.both("GET /experiment/models/*", h.getModelFolder)
	t.both("GET /experiment/models/preview/*/*/**", h.getFromAny)
	t.both("GET /extensions", h.getKnown("[]"))
	t.both("GET /i18n", h.getKnown("{}"))
	t.both("GET /workflow_templates", h.getKnown("{}"))
	t.both("GET /global_subgraphs", h.getKnown("{}"))
	t.both("GET /global_subgraphs/*", h.getSettled("null"))
	t.both("GET /node_replacements", h.getKnown("{}"))
	// Bare only.
	t.handle("GET /internal/logs", h.getLogs)
	t.handle("GET /internal/logs/raw", h.getLogs)
	t.handle("PATCH /internal/logs/subscribe", h.patchLogs)
	t.handle("GET /internal/folder_paths", h.getKnown("{}"))
	t.handle("GET /internal/files/*", h.getFolder)
	h.addAssets(t)
	t.both("PUT "+heldPath+"*", h.putHeld)
	t.both("GET "+heldPath+"*", h.getHeld)
	// As written, and once more below /api; there is no bare /jobs.
	t.both("GET /api/jobs", h.getComfyJobs)
	t.both("POST /api/jobs/cancel", h.postComfyJobsCancel)
	t.both("GET /api/jobs/*", h.getComfyJob)
	t.both("POST /api/jobs/*/cancel", h.postComfyJobCancel)
	return t
}

// ownRoutes are the hub's own API. They exist under /hub only.
func (h *Hub) ownRoutes() *router {
	t := &router{}
	t.handle("GET /hub/instances", h.getInstances)
	t.handle("GET /hub/jobs", h.getJobs)
	t.handle("GET /hub/jobs/*", h.getJob)
	t.handle("POST /hub/jobs/*/cancel", h.postJobCancel)
	t.handle("GET /hub/stats", h.getStats)
	t.handle("POST /hub/explain", h.postExplain)
	t.handle("POST /hub/files", h.postFiles)
	t.handle("GET "+linkPath+"*", h.getFile)
	return t
}

// Serve answers one request of ComfyUI's HTTP and WebSocket API, or of the
// hub's own under /hub/.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, v Visitor) {
	w.Header().Set(comfyui.HubHeader, Version)
	if !h.started.Load() {
		writeHubError(w, hubError{
			status: http.StatusServiceUnavailable, kind: "starting",
			message: "The hub is starting", retryAfter: 1,
		})
		return
	}
	path, noPath := aiohttp.ReadPath(r.URL)
	if noPath == nil {
		r = withPath(r, path)
	}
	if v.CORS != "" {
		w = withCORS(w, v.CORS, h.dispatch.Version())
	}
	if refuseStrangers(w, r, v) {
		return
	}
	if r.Method == http.MethodOptions {
		writeEmpty(w, http.StatusOK)
		return
	}
	if noPath != nil {
		writeNoPath(w, r)
		return
	}
	a := askerOf(r, v)
	h.recent.proven(a)
	if v.Proxied && !a.login {
		h.proxied.Do(func() {
			h.log().Warn("requests come through a proxy that the server's trusted_proxies does not name: " +
				"clients that send neither a client id nor the hub's cookie cannot be told apart, so their interrupts and clears do nothing")
		})
	}
	if refuseLong(w, r, v, a) {
		return
	}
	arrived, err := h.intake.Guard(w, r, a.share())
	if err != nil {
		w.Header().Set("Connection", "close")
		writeBusy(w)
		return
	}
	defer arrived()
	if a.login {
		h.logins.note()
	}
	w = greet(w, r, v, &a)
	own, values, allowed := h.own.find(r.Method, path)
	if own != nil {
		own(w, r, a, values)
		return
	}
	if allowed != nil {
		writeNotAllowed(w, allowHeader(allowed))
		return
	}
	handler, values, allowed := h.table.find(r.Method, path)
	switch {
	case handler != nil:
		handler(w, r, a, values)
	case allowed == nil:
		h.forward(w, r, a, path)
	case isInternal(path):
		writeNotAllowed(w, listed(allowed))
	case isRead(r):
		writeNotFound(w, r) // as ComfyUI's catch-all static route does
	default:
		writeNotAllowed(w, allowHeader(allowed))
	}
}

// ignoreNotFound treats a job that is not there as nothing to do.
func ignoreNotFound(err error) error {
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	}
	return err
}
