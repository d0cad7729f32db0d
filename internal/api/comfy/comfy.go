// Package comfy is the room of ComfyUI's own API: it translates between its
// routes, its errors and its shapes and the core. What is no route of the hub it
// passes on to an instance.
package comfy

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
)

// shared is what all handlers of the room have in common.
type shared struct {
	*api.Requests
	hub func() Core
}

// Room answers routes of ComfyUI, and what is no route of the hub. Handlers that
// belong together are the methods of a type of their own; Room itself is the
// socket, and passes on to an instance what nobody else answers.
type Room struct {
	shared

	// cancels takes prompts back.
	cancels *cancels
	// builds answers for files of the web UI's build.
	builds buildFiles
}

// New makes the room of a hub, whose parts core returns.
func New(core func() Core, requests *api.Requests) *Room {
	both := shared{Requests: requests, hub: core}
	return &Room{shared: both, cancels: &cancels{shared: both, shown: shown{core, &requests.Recent}}}
}

// AddRoutes adds what the room answers to a table of ComfyUI's routes.
func (c *Room) AddRoutes(t *api.Router) {
	prompts := prompts{c.shared}
	surveys := surveys{c.shared}
	stored := storedFiles{c.shared}
	lists := lists{shared: c.shared, shown: c.cancels.shown, receipts: receipts{c.shared}}
	jobs := jobLists{shared: c.shared, shown: lists.shown, receipts: lists.receipts}
	folders := userFolders{c.shared}
	settings, userFiles := userSettings{folders}, userFiles{folders}
	logs := instanceLogs{c.shared}
	assets{c.shared}.addRoutes(t)
	c.cancels.addRoutes(t)
	t.Both("GET /ws", c.getSocket)
	t.Both("GET /prompt", prompts.getPrompt)
	t.Both("POST /prompt", prompts.postPrompt)
	t.Both("GET /queue", lists.getQueue)
	t.Both("GET /history", lists.getHistory)
	t.Both("POST /history", lists.postHistory)
	t.Both("GET /history/*", lists.getHistoryOf)
	// As written, and once more below /api; there is no bare /jobs.
	t.Both("GET /api/jobs", jobs.getJobs)
	t.Both("GET /api/jobs/*", jobs.getJob)
	t.Both("GET /object_info", surveys.getObjectInfo)
	t.Both("GET /object_info/*", surveys.getObjectInfoOf)
	t.Both("GET /system_stats", surveys.getSystemStats)
	t.Both("GET /features", c.getFeatures)
	t.Both("GET /embeddings", surveys.merged(surveys.getUnion))
	t.Both("GET /models", surveys.merged(surveys.getUnion))
	t.Both("GET /models/*", surveys.merged(surveys.getUnion))
	t.Both("GET /view_metadata/*", surveys.getFromAny)
	t.Both("GET /experiment/models", surveys.merged(surveys.getModelFolders))
	t.Both("GET /experiment/models/*", surveys.merged(surveys.getModelFolder))
	t.Both("GET /experiment/models/preview/*/*/**", surveys.getFromAny)
	panel{c.shared, surveys}.addRoutes(t)
	t.Both("GET /i18n", surveys.told("{}"))
	t.Both("GET /workflow_templates", surveys.told("{}"))
	t.Both("GET /global_subgraphs", surveys.told("{}"))
	t.Both("GET /global_subgraphs/*", surveys.getSettled("null"))
	t.Both("GET /node_replacements", surveys.told("{}"))
	for _, pattern := range downloads {
		t.Both(pattern, func(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
			c.Forward(w, r, a, api.PathOf(r))
		})
	}
	t.Both("POST /free", c.postFree)
	t.Both("GET /view", stored.getView)
	t.Both("POST /upload/image", stored.postUpload)
	t.Both("POST /upload/mask", stored.postMask)
	t.Both("PUT "+files.HeldPath+"*", stored.putHeld)
	t.Both("GET "+files.HeldPath+"*", stored.getHeld)
	t.Both("GET /users", settings.getUsers)
	t.Both("POST /users", settings.postUsers)
	t.Both("GET /settings", settings.getSettings)
	t.Both("POST /settings", settings.postSettings)
	t.Both("GET /settings/*", settings.getSetting)
	t.Both("POST /settings/*", settings.postSetting)
	t.Both("GET /userdata", userFiles.getUserdata)
	t.Both("GET /v2/userdata", userFiles.getUserdataV2)
	t.Both("GET /userdata/*", userFiles.getUserfile)
	t.Both("POST /userdata/*", userFiles.postUserfile)
	t.Both("DELETE /userdata/*", userFiles.deleteUserfile)
	t.Both("POST /userdata/*/move/*", userFiles.postUserfileMove)
	t.Both("GET /userdata/**", userFiles.atPath(userFiles.getUserfile))
	t.Both("POST /userdata/**", userFiles.atPath(userFiles.postAtPath))
	t.Both("DELETE /userdata/**", userFiles.atPath(userFiles.deleteUserfile))
	// Bare only.
	t.Handle("GET /internal/logs", logs.getLogs)
	t.Handle("GET /internal/logs/raw", logs.getLogs)
	t.Handle("PATCH /internal/logs/subscribe", logs.patchLogs)
	t.Handle("GET /internal/files/*", stored.getFolder)
	t.Handle("GET /internal/folder_paths", surveys.told("{}"))
	for _, api := range []string{"", "/api"} {
		t.Audit("POST "+api+"/queue", "POST "+api+"/history", "DELETE "+api+"/userdata/*", "DELETE "+api+"/userdata/**")
	}
}
