// Package comfy is the room of ComfyUI's own API: it translates between its
// routes, its errors and its shapes and the core. It answers what is about the
// queue, the history and the jobs in them, about users, their settings and their
// files, about assets and the web UI, and passes on what is no route of the hub;
// the other routes are still in package hub.
package comfy

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// Room answers routes of ComfyUI, and what is no route of the hub.
type Room struct {
	*api.Requests
	hub *hub.Hub
	// builds answers for files of the web UI's build.
	builds buildFiles
}

// New makes the room of a hub.
func New(h *hub.Hub) *Room { return &Room{Requests: h.Requests(), hub: h} }

// AddRoutes adds what the room answers to a table of ComfyUI's routes.
func (c *Room) AddRoutes(t *api.Router) {
	c.addAssets(t)
	t.Both("GET /queue", c.getQueue)
	t.Both("POST /queue", c.postQueue)
	t.Both("GET /history", c.getHistory)
	t.Both("POST /history", c.postHistory)
	t.Both("GET /history/*", c.getHistoryOf)
	// As written, and once more below /api; there is no bare /jobs.
	t.Both("GET /api/jobs", c.getJobs)
	t.Both("GET /api/jobs/*", c.getJob)
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
}
