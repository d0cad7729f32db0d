package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// followFleet keeps a link to every instance that the fleet knows.
func (d *Dispatcher) followFleet(ctx context.Context) {
	changed, cancel := d.Fleet.Subscribe()
	defer cancel()
	for {
		d.reconcile(ctx)
		d.Wake()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile opens and closes links until they match the fleet.
func (d *Dispatcher) reconcile(ctx context.Context) {
	known := map[string]fleet.Instance{}
	for _, i := range d.Fleet.Instances() {
		known[i.Name] = i
	}
	closing := map[string]*link{}
	d.mu.Lock()
	for name, l := range d.links {
		if i, ok := known[name]; !ok || i.URL != l.url || i.Key != l.key {
			closing[name] = l
			delete(d.links, name)
			d.Connected.Set(name, nil)
		}
	}
	for name, i := range known {
		if d.links[name] != nil || i.URL == "" {
			continue
		}
		client, err := d.Connect(i)
		if err != nil {
			d.log.Error("instance cannot be used", "instance", name, "error", err)
			continue
		}
		d.links[name] = d.openLink(ctx, i, client)
	}
	d.mu.Unlock()
	for name, l := range closing {
		d.retire(l, d.link(name))
	}
}

// errDropped says that the fleet has an instance no longer: it was taken out of
// the configuration, or its agent left for good. It may well be alive.
var errDropped = errors.New("the fleet does not have it any more")

// retire closes a link. A run that has it goes over to the instance's new
// link: an agent that was restarted serves the same instances at another port,
// and they have worked on meanwhile.
func (d *Dispatcher) retire(l, next *link) {
	d.panels.dropOf(l)
	if r := l.running(); r != nil {
		if next != nil && next.attach(r) {
			r.mail.put(event{kind: moved, link: next})
		} else {
			r.mail.put(event{kind: socketDown, err: errDropped})
		}
	}
	d.work.Go(l.log, "closing a connection", l.close)
}

// setConnected tells everybody by which client a link's instance can be asked
// now; nil says that it cannot.
func (d *Dispatcher) setConnected(l *link, client *comfyui.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.links[l.name] == l { // one that is being closed says nothing of the next one
		d.Connected.Set(l.name, client)
	}
}

// link is the link to an instance, or nil.
func (d *Dispatcher) link(instance string) *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.links[instance]
}

// learn reads what an instance can run. It is asked after each connecting,
// because the process there may be another one with other models.
func (d *Dispatcher) learn(ctx context.Context, l *link) error {
	stats, err := l.client.SystemStats(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	info, hash, err := d.read(ctx, l)
	if err != nil {
		return err
	}
	if replaced, err := l.client.Get(ctx, "/node_replacements", nil); err == nil {
		if with, err := info.WithReplacements(replaced); err == nil {
			info = with
		}
	}
	l.learned(stats.Version)
	l.ask.forget()
	l.takeWhole(d.Library, info, hash, began)
	if i, ok := d.Fleet.Instance(l.name); !ok || i.State != fleet.Sick {
		// What a sick instance hangs on stays: it is how a cure shows.
		if err := d.tidy(ctx, l); err != nil {
			return err
		}
	}
	d.Learned(l.name, l.abilities(), stats.Version)
	l.log.Info("instance connected", "version", stats.Version.String(), "classes", info.Classes())
	d.resumeLogs(ctx, l)
	return nil
}

// read reads what an instance can run, and the hash of that; the body is large.
func (d *Dispatcher) read(ctx context.Context, l *link) (*catalog.Info, string, error) {
	held := d.turnOf(l)
	defer func() { held.leave() }()
	body, hash, err := l.client.ObjectInfo(ctx, held.wait)
	if err != nil {
		return nil, "", err
	}
	done, err := d.parsing.enter(ctx, "")
	if err != nil {
		return nil, "", err
	}
	defer done()
	info, err := d.Library.Parse(body)
	return info, hash, err
}

// followQueue turns what other hubs and this one did to the queue into work.
func (d *Dispatcher) followQueue(ctx context.Context) {
	for e := range d.queue.Subscribe(ctx) {
		d.heard(e)
	}
}

// open lists the links whose instances can be asked, by name: the first is
// the primary.
func (d *Dispatcher) open() []*link {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*link
	for _, l := range d.links {
		if l.isOpen() {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *link) int { return strings.Compare(a.name, b.name) })
	return out
}

// Clients are the clients of all connected instances, the primary's first.
func (d *Dispatcher) Clients() []*comfyui.Client {
	var out []*comfyui.Client
	for _, l := range d.open() {
		out = append(out, l.client)
	}
	return out
}

// Primary is the instance whose pages and extensions the fleet shows, nil
// when none is connected. It is the first by name: pages and their hashed
// files must all come from one build.
func (d *Dispatcher) Primary() *comfyui.Client {
	if links := d.open(); len(links) > 0 {
		return links[0].client
	}
	return nil
}

// Version is the lowest of the connected instances: what the whole fleet can
// keep. It is the zero Version while none is connected.
func (d *Dispatcher) Version() comfyui.Version {
	var lowest comfyui.Version
	for n, l := range d.open() {
		if v := l.capability(); n == 0 || v.Compare(lowest) < 0 {
			lowest = v
		}
	}
	return lowest
}

// hasOther reports whether another present instance could run a job.
func (d *Dispatcher) hasOther(r *run) bool {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	if err != nil {
		return false
	}
	key := r.job().Key
	for _, l := range d.open() {
		if l != r.link && !l.refuses(key) && l.abilities() != nil && len(l.abilities().Satisfies(needs)) == 0 {
			return true
		}
	}
	return false
}
