package caddymodule

import (
	"context"
	"net"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// occupiedTimeout bounds the look at an address where a site is about to listen.
const occupiedTimeout = time.Second

// occupiedDoubts say where a ComfyUI answers at an address of a site. On a PC with GPUs both
// like port 8188, and "address already in use" does not say who has it. Only the first
// configuration of a process is asked about: later ones would find the hub itself.
func occupiedDoubts(site *Handler) (list []hub.Finding) {
	if site.server == nil || caddy.ActiveContext().Context != nil {
		return nil
	}
	for _, listen := range site.server.Listen {
		address, err := caddy.ParseNetworkAddress(listen)
		if err != nil || address.IsUnixNetwork() || address.PortRangeSize() != 1 || address.StartPort == 0 {
			continue
		}
		at := address.JoinHostPort(0)
		if isComfyUI(at) {
			list = append(list, hub.Finding{
				Level: hub.LevelWarning, About: "address",
				Says: "a ComfyUI server answers at " + at + ", where the hub is to listen",
				Do:   "start the hub at another port, such as COMFYHUB_ADDR=127.0.0.1:8100, or ComfyUI with --port 8189",
			})
		}
	}
	return list
}

// isComfyUI reports whether a ComfyUI, and no hub, answers at an address of this machine.
func isComfyUI(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(context.Background(), occupiedTimeout)
	defer cancel()
	return comfyui.Probe(ctx, "http://"+net.JoinHostPort(host, port)) == nil
}
