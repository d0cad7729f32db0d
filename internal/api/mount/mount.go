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
}

// New makes the API of a hub, once. The hub has its parts after its first Start, so each room is
// given a function that returns those that it needs.
func New(h *hub.Hub) API {
	table := &api.Router{}
	requests := api.NewRequests(h, func() *slog.Logger { return h.Settings().Logger }, table)
	p := parts{h}
	room := comfy.New(p.comfy, requests)
	room.AddRoutes(table)
	own := ops.Routes(p.ops, requests)
	page.AddRoutes(own)
	server := api.NewServer(h, requests, api.Rooms{Own: own, Optional: slices.Concat([]api.Optional{comfyv2.Routes(p.comfyv2, requests), sdapi.Routes(p.sdapi, requests)}, plain.Routes(p.plain, requests), pull.Routes(p.pull, requests)), ComfyUI: table, Forward: room.Forward})
	return API{Server: server, ComfyUI: room}
}
