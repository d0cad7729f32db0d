// Package direct has the instances that no agent reports: a hub watches them itself.
package direct

import (
	"context"
	"log/slog"
	"net"
	"syscall"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// Dial connects to an instance.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// WatchFacade reports what an instance is doing that a facade in this process presents, until ctx
// ends.
func WatchFacade(ctx context.Context, f *fleet.Registry, kind, name string, dial Dial, log *slog.Logger) {
	client, err := comfyui.NewClient("http://"+kind, comfyui.Options{UserAgent: config.UserAgent, Dial: dial})
	if err != nil { // the address is a constant
		panic(err)
	}
	defer client.Close()
	comfyui.Watch(ctx, client, comfyui.WatchOptions{Logger: log}, func(o comfyui.Observation) { f.Observe(describe(kind, name, name, o)) })
}

// assumed is the version of ComfyUI that facades say they are while no ComfyUI is connected.
const assumed = "0.33.0"

// Version returns the version of ComfyUI that a facade says it is, by that of the fleet.
func Version(of comfyui.Version) comfyui.Version {
	if of.Known() {
		return of
	}
	return comfyui.ParseVersion(assumed)
}

// Late returns a Dial that asks at each call which one to use. Nil: it is refused.
func Late(now func() Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if dial := now(); dial != nil {
			return dial(ctx, network, address)
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
}

// describe turns what the hub itself has observed about an instance into the report that an agent
// would have sent.
func describe(kind, name, url string, o comfyui.Observation) fleet.InstanceReport {
	r := fleet.InstanceReport{
		Name: name, URL: url, Direct: true, Kind: kind,
		Up: o.Up, Reason: o.Reason,
		Queue: o.QueueRemaining, Foreign: o.Foreign,
		Running: o.Running, Job: o.RunningMark.Job, Fence: o.RunningMark.Fence,
		Version: o.Version.Text, GPU: o.GPU, GPUType: o.GPUType, VRAMTotal: o.VRAMTotal, VRAMFree: o.VRAMFree,
		ObjectInfo: o.ObjectInfoHash, Boot: o.Boot,
	}
	if !o.Since.IsZero() {
		r.Since = o.Since.UnixMilli()
	}
	return r
}
