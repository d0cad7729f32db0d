// Package origin decides which instances the web UI's page may come from.
package origin

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/pins"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// eldersEvery is how often the agents that other hubs know are read.
	eldersEvery = 10 * time.Second
	// eldersPause is the shortest time between two such readings.
	eldersPause = 250 * time.Millisecond
	// maxElders bounds the agents whose age is kept if there are no pins.
	maxElders = 10_000
)

// PageSource decides which instances the web UI's page, its scripts and whatever else runs with the
// rights of whoever is looking may come from, unless a folder of the operator's has them. Names can
// be chosen freely, so a name proves nothing. It is the first of these that exists:
//
//   - what the operator names with `primary`, in that order;
//   - the operator's static instances, in the order of the Caddyfile;
//   - the agent that has had its name for longest, as long as it has it.
//
// A newer one never takes its place, not even while it is away: whoever can make a machine go away
// must not become everybody's web UI. Machines behind tunnels and workers that fetch their jobs are
// the source only if the operator names them.
type PageSource struct {
	settings func() *config.Settings
	fleet    *fleet.Registry
	// client returns that of an instance that can be asked: a page that comes before the hub knows
	// what its instance can run would have no nodes.
	client func(instance string) *comfyui.Client
	// pins are nil in a fleet without a gossip key, where an agent is as old as this hub has known
	// it.
	pins *pins.Pins
	log  func() *slog.Logger

	// again makes run read the pins at once.
	again chan struct{}

	// stale says that the instances or the settings have changed.
	stale atomic.Bool

	mu     sync.Mutex
	elders []pins.Pin // the oldest first
	may    sources
	last   string // the instance that was the source, empty before the first
}

// sources are the instances that may be the source of the page: it is the first one that is
// connected.
type sources struct {
	instances []chosen
	// owners are the names of their agents, or their own if they have none, including those of
	// instances that are not known yet.
	owners []string
}

// chosen is an instance that may be the source, and its owner.
type chosen struct{ name, owner string }

// NewPageSource makes a source of the page. client returns that of an instance that can be asked;
// pinned is nil in a fleet without a gossip key.
func NewPageSource(settings func() *config.Settings, registry *fleet.Registry, client func(instance string) *comfyui.Client, pinned *pins.Pins, log func() *slog.Logger) *PageSource {
	p := &PageSource{settings: settings, fleet: registry, client: client, pins: pinned, log: log, again: make(chan struct{}, 1)}
	p.stale.Store(true)
	return p
}

// Changed says that an instance has come or gone, or that the settings have changed. It does not
// wait.
func (p *PageSource) Changed() { p.stale.Store(true) }

// Source is an instance that may be the source of the page.
type Source struct {
	// Owner is its agent's name, or its own if it has none.
	Owner  string
	Client *comfyui.Client
}

// Sources returns the connected instances that the page may come from, the one that it does come
// from first.
func (p *PageSource) Sources() []Source { return p.first(math.MaxInt) }

// Client returns the source of the page, nil while it is not connected.
func (p *PageSource) Client() *comfyui.Client {
	if list := p.first(1); len(list) > 0 {
		return list[0].Client
	}
	return nil
}

// first returns the first sources, at most most of them.
func (p *PageSource) first(most int) (out []Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	for _, i := range p.may.instances {
		client := p.client(i.name)
		if _, known := p.fleet.Instance(i.name); client == nil || !known {
			continue
		}
		if len(out) == 0 {
			p.note(i.name)
		}
		if out = append(out, Source{Owner: i.owner, Client: client}); len(out) == most {
			break
		}
	}
	return out
}

// Owns reports whether an agent, or an instance without one, is one of those that the page may come
// from, connected or not: what it has said before still counts.
func (p *PageSource) Owns(owner string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	return slices.Contains(p.may.owners, owner)
}

// Owners returns the names of those that the page may come from; it comes from the first one that
// is there.
func (p *PageSource) Owners() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	return slices.Clone(p.may.owners)
}

// WebUISource is where ComfyUI's page comes from.
type WebUISource struct {
	// From is "folder", "instance", or "nowhere" if nobody serves the page now; empty if that is
	// none of the viewer's business.
	From string
	// Name is that of the folder; of the agent, or the instance without one; or of those that could
	// serve the page if nobody does.
	Name string
}

// Where tells where the page comes from.
func (p *PageSource) Where() WebUISource {
	if folder := p.settings().Frontend; folder != "" {
		return WebUISource{"folder", folder}
	}
	if list := p.first(1); len(list) > 0 {
		return WebUISource{"instance", list[0].Owner}
	}
	return WebUISource{"nowhere", fleet.Few(p.Owners())}
}

// note tells the operator about another source. The caller holds the lock.
func (p *PageSource) note(name string) {
	if name == p.last {
		return
	}
	if p.last == "" {
		p.log().Info("serving the web UI from an instance", "instance", name)
	} else {
		p.log().Warn("serving the web UI from another instance", "instance", name, "before", p.last)
	}
	p.last = name
}

// refresh works out again which instances may be the source. The caller holds the lock.
func (p *PageSource) refresh() {
	if p.stale.Swap(false) {
		p.may = choose(p.settings(), p.fleet.Instances(), p.elders)
	}
}

// choose decides which instances the page may come from.
func choose(s *config.Settings, instances []fleet.Instance, elders []pins.Pin) (may sources) {
	add := func(fits func(fleet.Instance) bool) {
		for _, i := range instances {
			one := chosen{i.Name, cmp.Or(i.Agent, i.Name)}
			if i.Kind == fleet.KindComfyUI && fits(i) && !slices.Contains(may.instances, one) {
				may.instances = append(may.instances, one)
				may.owners = append(may.owners, one.owner)
			}
		}
	}
	for _, name := range s.Primary {
		may.owners = append(may.owners, name)
		add(func(i fleet.Instance) bool { return i.Name == name || i.Agent == name })
	}
	if len(s.Primary) > 0 {
		return may
	}
	for _, url := range s.Instances {
		if name, err := fleet.StaticName(url); err == nil {
			may.owners = append(may.owners, name)
			add(func(i fleet.Instance) bool { return i.Agent == "" && i.Name == name })
		}
	}
	if len(s.Instances) > 0 {
		return may
	}
	for n, elder := range eligible(elders, instances) {
		if n > 0 && !elder.Since.IsZero() {
			break // those from before times were recorded are all the same age
		}
		may.owners = append(may.owners, elder.Name)
		add(func(i fleet.Instance) bool { return i.Agent == elder.Name && !i.Tunnelled() })
	}
	return may
}

// eligible leaves out the owners of names that have no ComfyUI, as far as is known, and those
// behind a tunnel.
func eligible(elders []pins.Pin, instances []fleet.Instance) []pins.Pin {
	has, other := map[string]bool{}, map[string]bool{}
	for _, i := range instances {
		switch {
		case i.Agent == "" || i.URL == "": // a report that was refused has no address
		case i.Kind == fleet.KindComfyUI && !i.Tunnelled():
			has[i.Agent] = true
		default:
			other[i.Agent] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(elders), func(p pins.Pin) bool {
		return p.Key == fleet.TunnelKey || other[p.Name] && !has[p.Name]
	})
}

// Seen notes that an agent's report was accepted.
func (p *PageSource) Seen(r fleet.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Sender.Tunnel, slices.ContainsFunc(p.elders, func(e pins.Pin) bool { return e.Name == r.Agent }):
		return
	case p.pins != nil:
		select {
		case p.again <- struct{}{}:
		default:
		}
	case len(p.elders) < maxElders:
		p.elders = append(p.elders, pins.Pin{Name: r.Agent, Since: time.Now()})
		p.stale.Store(true)
	}
}

// Forget removes a name that has lost its owner from the order.
func (p *PageSource) Forget(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elders = slices.DeleteFunc(p.elders, func(e pins.Pin) bool { return e.Name == agent })
	p.stale.Store(true)
}

// read reads the owners of names.
func (p *PageSource) read(ctx context.Context) error {
	known, err := p.pins.Known(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elders = known
	p.stale.Store(true)
	return nil
}

// Run keeps the order of the agents as the hubs of one Redis know it, until the context ends.
func (p *PageSource) Run(ctx context.Context) {
	if p.pins == nil {
		return
	}
	tick := time.NewTicker(eldersEvery)
	defer tick.Stop()
	for {
		_ = p.read(ctx) // while Redis is away the order stays as it was
		select {
		case <-p.again:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !retry.Sleep(ctx, eldersPause) { // anybody who may join can make up names
			return
		}
	}
}
