// Package rooms puts the rooms of the API on a hub.
package rooms

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/comfy"
	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// API are all rooms of a hub.
type API struct {
	*api.Server
	ComfyUI *comfy.Room
}

// New makes the API of a hub, once.
func New(h *hub.Hub) API {
	room := comfy.New(h)
	table := h.Table()
	room.AddRoutes(table)
	server := api.NewServer(h, h.Requests(), h.Recent(), api.Rooms{Own: ops.Routes(h), ComfyUI: table, Forward: room.Forward})
	return API{Server: server, ComfyUI: room}
}
