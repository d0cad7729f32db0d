// Package mount puts the rooms of the API on a hub.
package mount

import (
	"log/slog"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/comfy"
	"github.com/comfyhub/comfyhub/internal/api/comfyv2"
	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/api/page"
	"github.com/comfyhub/comfyhub/internal/api/plain"
	"github.com/comfyhub/comfyhub/internal/api/pull"
	"github.com/comfyhub/comfyhub/internal/api/sdapi"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// API are all rooms of a hub.
type API struct {
	*api.Server
	ComfyUI *comfy.Room
	A1111   *sdapi.Room
}

// New makes the API of a hub, once.
func New(h *hub.Hub) API {
	table := &api.Router{}
	requests := api.NewRequests(h, func() *slog.Logger { return h.Settings().Logger }, table)
	room := comfy.New(h, requests)
	room.AddRoutes(table)
	own := ops.Routes(h, requests)
	page.AddRoutes(own)
	a1111 := sdapi.New(h, requests)
	server := api.NewServer(h, requests, api.Rooms{Own: own, Optional: slices.Concat([]api.Optional{comfyv2.Routes(h, requests), a1111.Routes()}, plain.Routes(h, requests), pull.Routes(h, requests)), ComfyUI: table, Forward: room.Forward})
	return API{Server: server, ComfyUI: room, A1111: a1111}
}
