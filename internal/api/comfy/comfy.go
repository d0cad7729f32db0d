// Package comfy is the room of ComfyUI's own API: it translates between its
// routes, its errors and its shapes and the core. What is no route of the hub it
// passes on to an instance.
package comfy

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// Room answers routes of ComfyUI, and what is no route of the hub.
type Room struct {
	*api.Requests
	hub *hub.Hub
	// cancels takes prompts back.
	cancels *cancels
	// builds answers for files of the web UI's build.
	builds buildFiles
}

// New makes the room of a hub.
func New(h *hub.Hub, requests *api.Requests) *Room {
	return &Room{
		Requests: requests, hub: h,
		cancels: &cancels{Requests: requests, hub: h, shown: shown{h, &requests.Recent}},
	}
}

// AddRoutes adds what the room answers to a table of ComfyUI's routes.
func (c *Room) AddRoutes(t *api.Router) {
	c.addAssets(t)
	c.cancels.addRoutes(t)
	t.Both("GET /ws", c.getSocket)
	t.Both("GET /prompt", c.getPrompt)
	t.Both("POST /prompt", c.postPrompt)
	t.Both("GET /queue", c.getQueue)
	t.Both("GET /history", c.getHistory)
	t.Both("POST /history", c.postHistory)
	t.Both("GET /history/*", c.getHistoryOf)
	// As written, and once more below /api; there is no bare /jobs.
	t.Both("GET /api/jobs", c.getJobs)
	t.Both("GET /api/jobs/*", c.getJob)
	t.Both("GET /object_info", c.getObjectInfo)
	t.Both("GET /object_info/*", c.getObjectInfoOf)
	t.Both("GET /system_stats", c.getSystemStats)
	t.Both("GET /features", c.getFeatures)
	t.Both("GET /embeddings", c.getUnion)
	t.Both("GET /models", c.getUnion)
	t.Both("GET /models/*", c.getUnion)
	t.Both("GET /view_metadata/*", c.getFromAny)
	t.Both("GET /experiment/models", c.getModelFolders)
	t.Both("GET /experiment/models/*", c.getModelFolder)
	t.Both("GET /experiment/models/preview/*/*/**", c.getFromAny)
	t.Both("GET /extensions", c.getKnown("[]"))
	t.Both("GET /i18n", c.getKnown("{}"))
	t.Both("GET /workflow_templates", c.getKnown("{}"))
	t.Both("GET /global_subgraphs", c.getKnown("{}"))
	t.Both("GET /global_subgraphs/*", c.getSettled("null"))
	t.Both("GET /node_replacements", c.getKnown("{}"))
	t.Both("POST /free", c.postFree)
	t.Both("GET /view", c.getView)
	t.Both("POST /upload/image", c.postUpload)
	t.Both("POST /upload/mask", c.postMask)
	t.Both("PUT "+files.HeldPath+"*", c.putHeld)
	t.Both("GET "+files.HeldPath+"*", c.getHeld)
	t.Both("GET /users", c.getUsers)
	t.Both("POST /users", c.postUsers)
	t.Both("GET /settings", c.getSettings)
	t.Both("POST /settings", c.postSettings)
	t.Both("GET /settings/*", c.getSetting)
	t.Both("POST /settings/*", c.postSetting)
	t.Both("GET /userdata", c.getUserdata)
	t.Both("GET /v2/userdata", c.getUserdataV2)
	t.Both("GET /userdata/*", c.getUserfile)
	t.Both("POST /userdata/*", c.postUserfile)
	t.Both("DELETE /userdata/*", c.deleteUserfile)
	t.Both("POST /userdata/*/move/*", c.postUserfileMove)
	// Bare only.
	t.Handle("GET /internal/logs", c.getLogs)
	t.Handle("GET /internal/logs/raw", c.getLogs)
	t.Handle("PATCH /internal/logs/subscribe", c.patchLogs)
	t.Handle("GET /internal/files/*", c.getFolder)
	t.Handle("GET /internal/folder_paths", c.getKnown("{}"))
}
