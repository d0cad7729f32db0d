// Package upstream says which instance is asked for what the hub does not answer itself.
package upstream

import (
	"context"
	"log/slog"
	"slices"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/view"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

// Instances are the connected instances, as dialects call them.
type Instances struct {
	Dispatch *dispatch.Dispatcher
	Pages    *origin.PageSource
	Named    *comfyui.Clients
	Streams  *stream.Streams
	Insight  *view.Insight
	Left     *LeftPictures
	Settings func() *config.Settings
	Log      func() *slog.Logger
}

// Version returns the version of ComfyUI that the whole fleet supports; not Known while nothing is
// connected.
func (n *Instances) Version() comfyui.Version { return n.Dispatch.Instances.Version() }

// Primary returns the instance that the web UI's page and the scripts of extensions come from, nil
// while it is not connected: no other may stand in for it.
func (n *Instances) Primary() *comfyui.Client { return n.Pages.Client() }

// PageSources returns the connected instances that the page and what belongs to it may come from,
// the primary first.
func (n *Instances) PageSources() []origin.Source { return n.Pages.Sources() }

// MayTellPage reports whether what an agent, or an instance without one, once said about the page
// still counts.
func (n *Instances) MayTellPage(owner string) bool { return n.Pages.Owns(owner) }

// Clients returns those of all connected instances, the primary's first.
func (n *Instances) Clients() []*comfyui.Client {
	primary := n.Primary()
	all := n.Dispatch.Instances.Clients()
	if at := slices.Index(all, primary); at > 0 {
		all = slices.Insert(slices.Delete(all, at, at+1), 0, primary)
	}
	return all
}

// A1111 returns the clients of the connected servers of A1111's API that run a tenant's jobs,
// sorted by name.
func (n *Instances) A1111(tenant string) []*comfyui.Client {
	return n.Dispatch.Instances.ClientsOf(fleet.KindA1111, tenant)
}

// ClientOf returns the client of an instance by its name, nil while it is not connected.
func (n *Instances) ClientOf(instance string) *comfyui.Client { return n.Named.ByName(instance) }

// ClientFor returns the instance for a call that is not a route of the hub, given the client ids
// that it may come from: the one that is running a job of theirs, because a node may be waiting for
// just this call; else the one that ran their last job; else the primary, or any. It is nil while
// none is connected.
func (n *Instances) ClientFor(tenant string, clients []string) *comfyui.Client {
	for _, id := range clients {
		if c := n.Dispatch.Affinity.Running(tenant, id); c != nil {
			return c
		}
	}
	for _, id := range clients {
		if c := n.Dispatch.Affinity.RanLast(tenant, id); c != nil {
			return c
		}
	}
	if primary := n.Primary(); primary != nil {
		return primary
	}
	return n.Dispatch.Instances.First()
}

// Doubt makes the hub ask an instance again what it can run: a call may have changed it.
func (n *Instances) Doubt(c *comfyui.Client) { n.Dispatch.Discovery.Doubt(c) }

// Introduce makes a client known to an instance, if the hub knows it, and returns the id that the
// instance knows it by.
func (n *Instances) Introduce(ctx context.Context, to *comfyui.Client, tenant, client string) (comfyui.Alias, bool) {
	k := stream.Key{Tenant: tenant, Client: client}
	if !n.Streams.Knows(ctx, k) {
		return comfyui.Alias{}, false
	}
	return n.Dispatch.Panels.Introduce(ctx, to, k)
}
