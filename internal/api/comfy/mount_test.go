package comfy_test

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/comfy"
	"github.com/comfyhub/comfyhub/internal/api/mount"
	"github.com/comfyhub/comfyhub/internal/hub"
)

func init() {
	comfy.Mount = func(h *hub.Hub) (*api.Server, *comfy.Room) {
		all := mount.New(h)
		return all.Server, all.ComfyUI
	}
}
