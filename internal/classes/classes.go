// Package classes knows which node classes the instances have, and checks prompts against them.
package classes

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Files are the tenants' files.
type Files interface {
	Resolver
	List(ctx context.Context, tenant, typ, subfolder string) ([]files.Entry, error)
}

// Classes are the fleet's node classes, and what each of their inputs may be.
type Classes struct {
	Inventory *Inventory
	dispatch  *dispatch.Dispatcher
	store     Files
	// age is how old the answer about one class may be, see Settings.CatalogAge.
	age       func() time.Duration
	Beginning *beginning
}

// NewClasses makes the classes from what each instance can run. since is when the hub began to
// serve.
func NewClasses(known *Inventory, registry *fleet.Registry, d *dispatch.Dispatcher, store Files, looked <-chan struct{}, settings func() *config.Settings, since func() time.Time) *Classes {
	return &Classes{
		Inventory: known, dispatch: d, store: store, age: func() time.Duration { return settings().CatalogAge },
		Beginning: &beginning{fleet: registry, dispatch: d, settings: settings, since: since, looked: looked, waiting: waiters{of: map[string]int{}}},
	}
}

// All describes all node classes to a tenant; false while none is known. Whoever asks may be
// looking for a new model, so the instances are asked again if what is known about them may have
// changed.
func (c *Classes) All(ctx context.Context, tenant string) (catalog.Document, bool) {
	if c.Inventory.Catalog() == nil {
		return catalog.Document{}, false
	}
	c.dispatch.Discovery.Refresh(ctx)
	return c.Inventory.Catalog().ObjectInfo(c.uploaded(ctx, tenant)), true
}

// One describes a single node class to a tenant: {} if no instance has it.
func (c *Classes) One(ctx context.Context, tenant, class string) catalog.Document {
	c.dispatch.Discovery.AskClasses(ctx, []string{class}, time.Now().Add(-c.age()), false)
	return c.Inventory.Catalog().Class(class, c.uploaded(ctx, tenant))
}

// Known describes a node class from what is known without asking anybody, for programs that need no
// files; nil if no instance has it.
func (c *Classes) Known(class string) *pyjson.Object {
	v, err := pyjson.Parse(c.Inventory.Catalog().Class(class, nil).Body())
	if err != nil {
		return nil
	}
	all, _ := v.(*pyjson.Object)
	return all.Object(class)
}

// uploaded returns the tenant's files in the input folder, which the widgets of file inputs offer
// beside the files on the instances.
func (c *Classes) uploaded(ctx context.Context, tenant string) catalog.Uploads {
	var names catalog.Uploads
	for _, folder := range []string{"", "3d"} {
		entries, err := c.store.List(ctx, tenant, job.TypeInput, folder)
		if err != nil {
			return nil // the listing is still useful without them
		}
		for _, e := range entries {
			names = append(names, e.Ref.Value(false))
		}
	}
	return names
}

// MaxObjections bounds the objections in one answer.
const MaxObjections = 100

// lookTimeout is how long, after a start, a prompt that the first instances cannot run waits for
// what is known about the others.
const lookTimeout = 10 * time.Second

// LookFirst waits for what is known of other instances.
func (c *Classes) LookFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	select {
	case <-c.Beginning.looked:
	case <-ctx.Done():
	}
}

// APINodes returns the nodes of a prompt that need its API key.
func (c *Classes) APINodes(v *catalog.Verdict, secrets []byte) []string {
	if !catalog.HasSecret(secrets) {
		return nil
	}
	return catalog.APINodes(v.Graph, v.Outputs, c.dispatch.Access.WithSecrets(c.Inventory.Infos()))
}

// Barred returns the answer to a tenant's prompt if, as far as instances are known, none of those
// that could run it may; nil if one may. paid are the nodes that need its API key.
func (c *Classes) Barred(v *catalog.Verdict, needs catalog.Requirements, tenant string, paid []string) *catalog.Answer {
	if !c.Beginning.HasLooked() {
		return nil
	}
	switch c.dispatch.Access.Barred(c.Inventory.Infos(), needs, tenant) {
	case dispatch.BarredReserved:
		return catalog.Reserved()
	case dispatch.BarredSecrets:
		var against []catalog.Objection
		for _, node := range paid[:min(len(paid), MaxObjections)] {
			against = append(against, catalog.WithheldKey(node))
		}
		return catalog.Forbid(v, against)
	default:
		return nil
	}
}

// Validate checks a prompt against what the fleet can run. An instance may have
// got a file since it was asked last. So before a prompt is refused because it
// names what no list has, the instances are asked again for those classes. A
// prompt that is accepted all the same goes to an instance that has the file. One that is
// posted while no instance says what it can run is accepted after a while and checked later,
// by unfit. The error is that of the context.
func (c *Classes) Validate(ctx context.Context, tenant string, p catalog.Prompt) (*catalog.Catalog, *catalog.Verdict, error) {
	if err := c.Await(ctx, "prompts:"+tenant); err != nil && !errors.Is(err, catalog.ErrUnknown) {
		return nil, nil, err
	}
	p.Version = c.version()
	p.Makes = func(q catalog.Question) bool { return c.dispatch.Lessons.Makes(ctx, c.Inventory.Infos(), q) }
	now, looked := time.Now(), c.Beginning.HasLooked() // before the catalog is read: it may change in between
	known := c.Inventory.Catalog()
	verdict := known.Validate(p)
	if !verdict.Accepted() && !looked {
		c.LookFirst(ctx)
		known = c.Inventory.Catalog()
		verdict = known.Validate(p)
	}
	if len(verdict.Unlisted) == 0 {
		return known, verdict, nil
	}
	whole := verdict.Accepted() && verdict.NodeErrors.Len() == 0
	c.dispatch.Discovery.AskClasses(ctx, verdict.Unlisted, now, whole)
	if fresh := c.Inventory.Catalog(); fresh != known {
		return fresh, fresh.Validate(p), nil
	}
	return known, verdict, nil
}

// version is what the hub emulates: the lowest version of the connected instances, else of
// those that were here.
func (c *Classes) version() comfyui.Version {
	if v := c.dispatch.Instances.Version(); v != (comfyui.Version{}) {
		return v
	}
	return c.Inventory.version()
}
