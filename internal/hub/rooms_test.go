package hub_test

import (
	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/api/rooms"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// The rooms of the API import this package, so that its own tests cannot import
// them. This file is of another package, and can.
func init() {
	hub.NewRooms = func(h *hub.Hub) hub.Rooms {
		all := rooms.New(h)
		return hub.Rooms{Server: all.Server, AwaitingBuild: all.ComfyUI.AwaitingBuild, RememberCalls: all.ComfyUI.RememberCalls}
	}
	hub.InstancesJSON = ops.InstancesJSON
}
