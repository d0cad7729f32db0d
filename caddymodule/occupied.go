package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// occupiedTimeout bounds the look at an address where a site is about to listen.
const occupiedTimeout = time.Second

// occupied returns an error if another program listens already where a site is to listen, which says
// which program and what to do. On a PC with GPUs ComfyUI and the hub both like
// port 8188, and "address already in use" does not say who has it. Worse, Caddy shares a port with
// another Caddy of the same user: a second hub there would get some of the requests, and nobody
// would be told.
//
// It must be asked before anything listens, and only of the first configuration of a process: at a
// reload it would find the hub itself.
func occupied(site *Handler) error {
	if site.server == nil {
		return nil
	}
	move := "start the hub at another port, such as COMFYHUB_ADDR=127.0.0.1:8100"
	if site.operators {
		move = "have the operators' site at another port, such as COMFYHUB_OPERATORS=127.0.0.1:8101"
	}
	for _, listen := range site.server.Listen {
		address, err := caddy.ParseNetworkAddress(listen)
		if err != nil || !strings.HasPrefix(address.Network, "tcp") || address.PortRangeSize() != 1 || address.StartPort == 0 {
			continue
		}
		at := address.JoinHostPort(0)
		if !taken(address.Network, at) {
			continue
		}
		switch err := probe(at); {
		case err == nil:
			return fmt.Errorf("ComfyUI answers at %s, where the hub is to listen: start ComfyUI with --port 8189, or %s", at, move)
		case errors.Is(err, comfyui.ErrHub):
			return fmt.Errorf("another hub already answers at %s, and each request would go to either of them: stop that one, or %s", at, move)
		}
		return fmt.Errorf("another program already listens at %s: stop it, or %s", at, move)
	}
	return nil
}

// tellOccupied says what [App.Start] would have said, if Caddy had asked it before the web server:
// it starts its apps in any order, and the web server only knows that the address is in use.
func tellOccupied(a *App) {
	if a.occupied == nil || a.begun || a.ended == nil {
		return
	}
	why := a.ended()
	if why == nil || !strings.HasPrefix(why.Error(), "configuration start error") || strings.Contains(why.Error(), a.occupied.Error()) {
		return
	}
	slog.New(a.logs).Error(a.occupied.Error())
}

// taken reports whether a program listens at an address. It tries to, without sharing the port as
// Caddy does. Where that fails for another reason, Caddy will say so.
func taken(network, address string) bool {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), network, address)
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	_ = listener.Close()
	return false
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
