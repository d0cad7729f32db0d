package instance

import (
	"context"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Sink is whoever gives the instances their work.
type Sink interface {
	// Wake says that instances may be able to run other jobs than before. It must not block.
	Wake()
	// Freed says that an instance may take a job. It must not block.
	Freed()
	// Clear stops prompts on an instance that nobody is waiting for, before it gets jobs.
	Clear(ctx context.Context, conn *Link) error
}

// Roster stores what instances can run.
type Roster interface {
	// Keep stores a body of /object_info. It must not wait, nor retain the body.
	Keep(instance string, version comfyui.Version, hash string, body []byte)
	// Recall returns what was stored under a hash, nil if there is nothing.
	Recall(ctx context.Context, hash string) *catalog.Info
	// Recalled notes that an instance has what Recall returned.
	Recalled(instance string, version comfyui.Version, hash string)
}

// Config is what the links to the instances work with.
type Config struct {
	// Fleet says which instances there are.
	Fleet *fleet.Registry
	// Connected is told which instances are connected.
	Connected *comfyui.Clients
	// Connect makes the client of an instance.
	Connect func(fleet.Instance) (*comfyui.Client, error)
	// MaySecrets reports whether an instance gets API keys.
	MaySecrets func(fleet.Instance) bool
	// APIOnly reports whether an instance takes only prompts whose work a paid service does.
	APIOnly func(fleet.Instance) bool
	// ContactTimeout is how long an instance may be out of reach, CatalogAge how old the hub's
	// knowledge of its classes and models may be when a client asks, and GPUs are the names of GPUs
	// that the operator has set, by instance.
	ContactTimeout, CatalogAge func() time.Duration
	GPUs                       func() map[string]string
	// Library parses object_info, and Roster stores it; it may be nil.
	Library *catalog.Library
	Roster  Roster
	// Learned is told what an instance can run when it connects and whenever that changes.
	Learned func(instance string, info *catalog.Info, version comfyui.Version)
	// Logged is told the log messages of an instance. It must not block, and may be nil.
	Logged func(instance string, frame []byte)
	// Streams have the sockets of clients.
	Streams *stream.Streams
	// Above gives the instances their work.
	Above Sink
	// Ctx ends all work, of which Work keeps count.
	Ctx    context.Context
	Work   *panics.Group
	Logger *slog.Logger
}

// Room keep the links to all instances, and what is known of them.
type Room struct {
	Links     *Links
	Reports   *Reports
	Discovery *Discovery
	Logs      *Logs
	Panels    *Panels
	linker    *linker
}

// New makes the parts; Follow opens the links.
func New(c Config) *Room {
	p := &Room{
		Links:   &Links{Published: c.Connected, named: map[string]*Link{}},
		Reports: &Reports{fleet: c.Fleet, contact: c.ContactTimeout, gpus: c.GPUs},
	}
	p.Logs = &Logs{links: p.Links, logged: c.Logged}
	p.Panels = &Panels{links: p.Links, streams: c.Streams, ctx: c.Ctx, work: c.Work}
	p.Discovery = &Discovery{
		fleet: c.Fleet, library: c.Library, roster: c.Roster, learned: c.Learned, age: c.CatalogAge, links: p.Links, above: c.Above,
		ctx: c.Ctx, work: c.Work, log: c.Logger, budget: newBudget(),
	}
	p.linker = &linker{
		fleet: c.Fleet, connect: c.Connect, maySecrets: c.MaySecrets, apiOnly: c.APIOnly, contact: c.ContactTimeout, links: p.Links, discovery: p.Discovery,
		panels: p.Panels, logs: p.Logs, above: c.Above, ctx: c.Ctx, work: c.Work, log: c.Logger,
	}
	return p
}

// Follow keeps the links as the fleet says, until ctx ends.
func (p *Room) Follow(ctx context.Context) { p.linker.follow(ctx) }
