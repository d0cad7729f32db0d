// Package comfy is the room of ComfyUI's own API: it translates between its
// routes, its errors and its shapes and the core. It answers those about users,
// their settings and their files; the others are still in package hub.
package comfy

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// room answers routes of ComfyUI.
type room struct {
	*api.Requests
	hub *hub.Hub
}

// Mount adds the room's routes to those of a hub.
func Mount(h *hub.Hub) {
	c := &room{Requests: h.Requests(), hub: h}
	t := h.Table()
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
