package hub_test

import (
	"github.com/comfyhub/comfyhub/internal/api/comfy"
	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// The rooms of the API import this package, so that its own tests cannot import
// them. This file is of another package, and can.
func init() {
	hub.MountRooms = func(h *hub.Hub) {
		comfy.Mount(h)
		h.Mount(ops.Routes(h))
	}
	hub.InstancesJSON = ops.InstancesJSON
}
