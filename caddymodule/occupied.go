package caddymodule

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
)

// occupiedTimeout bounds the look at an address where a site is about to listen.
const occupiedTimeout = time.Second

// occupiedDoubts say who answers already at an address of a site. On a PC with GPUs ComfyUI and
// the hub both like port 8188, and "address already in use" does not say who has it. Caddy shares a
// port with another Caddy, so that a second hub there starts without an error. Only the first
// configuration of a process is asked about: later ones would find the hub itself.
func occupiedDoubts(site *Handler) (list []config.Finding) {
	if site.server == nil || caddy.ActiveContext().Context != nil {
		return nil
	}
	for _, listen := range site.server.Listen {
		address, err := caddy.ParseNetworkAddress(listen)
		if err != nil || address.IsUnixNetwork() || address.PortRangeSize() != 1 || address.StartPort == 0 {
			continue
		}
		at := address.JoinHostPort(0)
		switch err := probe(at); {
		case err == nil:
			list = append(list, config.Finding{
				Level: config.LevelWarning, About: "address",
				Says: "ComfyUI answers at " + at + ", where the hub is to listen",
				Do:   "start the hub at another port, such as COMFYHUB_ADDR=127.0.0.1:8100, or ComfyUI with --port 8189",
			})
		case errors.Is(err, comfyui.ErrHub):
			list = append(list, config.Finding{
				Level: config.LevelWarning, About: "address",
				Says: "another hub already answers at " + at + ": both will listen there, and each request goes to either of them",
				Do:   "stop one of them, or start this one at another port, such as COMFYHUB_ADDR=127.0.0.1:8100",
			})
		}
	}
	return list
}

// probe asks who answers at an address of this machine: nil for a ComfyUI, [comfyui.ErrHub] for a
// hub.
func probe(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(context.Background(), occupiedTimeout)
	defer cancel()
	return comfyui.Probe(ctx, "http://"+net.JoinHostPort(host, port))
}
