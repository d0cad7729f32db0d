package hub_test

import (
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// Package rooms imports this package, so this package's own tests cannot import
// it. This file belongs to another package, which can.
func init() {
	hub.NewRooms = func(h *hub.Hub) hub.Rooms {
		all := mount.New(h)
		return hub.Rooms{Server: all.Server, AwaitingBuild: all.ComfyUI.AwaitingBuild, RememberCalls: all.ComfyUI.RememberCalls}
	}
	hub.InstancesJSON = func(h *hub.Hub) []byte { return ops.InstancesJSON(h.Operator().Instances()) }
}
