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

// followFleet keeps a connection to every instance that the fleet knows.
func (d *Dispatcher) followFleet(ctx context.Context) {
	changes := d.Fleet.Subscribe()
	defer changes.Close()
	for {
		select {
		case <-changes.Ready():
			d.reconcile(ctx, changes.Take())
			d.freed() // no new jobs are waiting
		case <-ctx.Done():
			return
		}
	}
}

// reconcile opens and closes the connections to these instances until they match the fleet.
func (d *Dispatcher) reconcile(ctx context.Context, names []string) {
	closing := map[string]*connection{}
	d.mu.Lock()
	for _, name := range names {
		i, known := d.Fleet.Instance(name)
		if conn := d.connections[name]; conn != nil {
			if known && i.URL == conn.url && i.Key == conn.key {
				continue
			}
			closing[name] = conn
			delete(d.connections, name)
			d.Connected.Set(name, nil)
		}
		if !known || i.URL == "" {
			continue
		}
		client, err := d.Connect(i)
		if err != nil {
			d.log.Error("instance cannot be used", "instance", name, "error", err)
			continue
		}
		d.connections[name] = d.openConnection(ctx, i, client)
	}
	d.mu.Unlock()
	for name, conn := range closing {
		d.retire(conn, d.connection(name))
	}
}

// errDropped says that the fleet no longer has an instance: it was removed from the configuration,
// or its agent has left for good. The instance may well be alive.
var errDropped = errors.New("the fleet does not have it any more")

// retire closes a connection. Its run moves to the instance's next connection, if there is one: a
// restarted agent serves the same instances on another port, and they have gone on working
// meanwhile.
func (d *Dispatcher) retire(conn, next *connection) {
	d.panels.dropOf(conn)
	for _, r := range conn.runs() {
		if r == nil {
			continue
		}
		if next != nil && (next.attach(r) || next.attachAhead(r)) {
			next.show(r)
			r.mail.put(runEvent{kind: moved, conn: next})
			if d.followed(r.job().Key) != r { // it has ended and will not read this
				next.detach(r)
			}
		} else {
			r.mail.put(runEvent{kind: socketDown, err: errDropped})
		}
	}
	d.work.Go(conn.log, "closing a connection", conn.close)
}

// setConnected publishes the client of a connection, or nil when its instance cannot be asked.
func (d *Dispatcher) setConnected(conn *connection, client *comfyui.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connections[conn.name] == conn { // one that is closing has no say about its successor
		d.Connected.Set(conn.name, client)
	}
}

// connection returns the connection to an instance, or nil.
func (d *Dispatcher) connection(instance string) *connection {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.connections[instance]
}

// reach asks an instance what it is and what it is running, each time the socket opens. Its runs
// are followed from then on: a restarting hub must not lose one because the instance takes minutes
// to say what it can run.
func (d *Dispatcher) reach(ctx context.Context, conn *connection) error {
	stats, err := conn.client.SystemStats(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.client.Queue(ctx); err != nil {
		return err
	}
	conn.setReached(stats.Version)
	d.setConnected(conn, conn.client) // outputs are fetched through it
	conn.deliver(runEvent{kind: socketUp})
	return nil
}

// learn reads what an instance can run, each time the socket opens: it may be another process with
// other models.
func (d *Dispatcher) learn(ctx context.Context, conn *connection) error {
	if i, ok := d.Fleet.Instance(conn.name); !ok || i.State != fleet.Sick {
		// The prompt on which an unhealthy instance hangs stays: when it ends, the instance has
		// recovered.
		if err := d.cancelStale(ctx, conn); err != nil {
			return err
		}
	}
	began := time.Now()
	info, hash := d.recall(ctx, conn)
	recalled := info != nil
	if !recalled {
		var err error
		if info, hash, err = d.read(ctx, conn); err != nil {
			return err
		}
	}
	if replaced, err := conn.client.Get(ctx, "/node_replacements", nil); err == nil {
		if with, err := info.WithReplacements(replaced); err == nil {
			info = with
		}
	}
	conn.ask.forget()
	if recalled {
		conn.takeRecalled(info, hash)
	} else {
		conn.takeWhole(d.Library, info, hash, began)
	}
	d.Learned(conn.name, conn.abilities(), conn.capability())
	conn.log.Info("instance connected", "version", conn.capability().String(), "classes", info.Classes())
	d.resumeLogs(ctx, conn)
	return nil
}

// recall returns what was stored about an instance, if its agent says that this is still what it
// can run.
func (d *Dispatcher) recall(ctx context.Context, conn *connection) (*catalog.Info, string) {
	i, known := d.Fleet.Instance(conn.name)
	if d.Roster == nil || !known || !i.Reported() || i.Report.ObjectInfo == "" {
		return nil, ""
	}
	hash := i.Report.ObjectInfo
	info := d.Roster.Recall(ctx, hash)
	if info != nil {
		d.Roster.Recalled(conn.name, conn.capability(), hash)
	}
	return info, hash
}

// read returns what an instance can run, and the hash of the answer, which is large.
func (d *Dispatcher) read(ctx context.Context, conn *connection) (*catalog.Info, string, error) {
	held := d.turnOf(conn)
	defer func() { held.leave() }()
	body, hash, err := conn.client.ObjectInfo(ctx, held.wait)
	if err != nil {
		return nil, "", err
	}
	done, err := d.parsing.enter(ctx, "")
	if err != nil {
		return nil, "", err
	}
	defer done()
	info, err := d.Library.Parse(body)
	if err == nil && d.Roster != nil {
		d.Roster.Keep(conn.name, conn.capability(), hash, body)
	}
	return info, hash, err
}

// followQueue reacts to what this hub and others do to the queue.
func (d *Dispatcher) followQueue(ctx context.Context) {
	for e := range d.queue.Subscribe(ctx) {
		d.heard(e)
	}
}

// connected returns the connections whose instances can be asked, by name.
func (d *Dispatcher) connected() []*connection {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*connection
	for _, conn := range d.connections {
		if conn.isOpen() {
			out = append(out, conn)
		}
	}
	slices.SortFunc(out, func(a, b *connection) int { return strings.Compare(a.name, b.name) })
	return out
}

// servers returns the connected instances that are ComfyUI, with all its pages and lists.
func (d *Dispatcher) servers() []*connection {
	return slices.DeleteFunc(d.connected(), func(c *connection) bool { return c.kind != fleet.KindComfyUI })
}

// Clients returns the clients of all connected ComfyUIs, by their names.
func (d *Dispatcher) Clients() []*comfyui.Client {
	var out []*comfyui.Client
	for _, conn := range d.servers() {
		out = append(out, conn.client)
	}
	return out
}

// ClientsOf returns the clients of the connected instances of a kind that run jobs of a
// tenant, by their names.
func (d *Dispatcher) ClientsOf(kind, tenant string) []*comfyui.Client {
	var out []*comfyui.Client
	for _, conn := range d.connected() {
		if conn.kind == kind && d.mayUse(tenant, conn.name) {
			out = append(out, conn.client)
		}
	}
	return out
}

// ClientOf returns the client of a connected ComfyUI; nil if it is not connected, or if it is not
// known yet what it can run.
func (d *Dispatcher) ClientOf(instance string) *comfyui.Client {
	if conn := d.connection(instance); conn != nil && conn.isOpen() && conn.kind == fleet.KindComfyUI {
		return conn.client
	}
	return nil
}

// First returns the connected ComfyUI whose name sorts first, nil if there is none. Names can be
// chosen freely, so it is one to ask, not one to trust.
func (d *Dispatcher) First() *comfyui.Client {
	if conns := d.servers(); len(conns) > 0 {
		return conns[0].client
	}
	return nil
}

// Version returns the lowest version among the connected ComfyUIs: what the whole fleet supports.
// It returns the zero Version while none is connected.
func (d *Dispatcher) Version() comfyui.Version {
	var lowest comfyui.Version
	for n, conn := range d.servers() {
		if v := conn.capability(); n == 0 || v.Compare(lowest) < 0 {
			lowest = v
		}
	}
	return lowest
}

// Flags returns the features that all connected ComfyUIs announce.
func (d *Dispatcher) Flags() comfyui.Flags {
	var all []comfyui.Flags
	for _, conn := range d.servers() {
		all = append(all, conn.announces())
	}
	return comfyui.AgreedFlags(all)
}

// Names returns the names of the connected instances.
func (d *Dispatcher) Names() map[string]bool {
	names := map[string]bool{}
	for _, conn := range d.connected() {
		names[conn.name] = true
	}
	return names
}

// elsewhere reports whether an instance of another hub could run a tenant's job.
func (d *Dispatcher) elsewhere(needs catalog.Requirements, tenant string) bool {
	return d.ownersElsewhere(needs).has(tenant)
}

// ownersElsewhere returns whose jobs the instances of other hubs could run.
func (d *Dispatcher) ownersElsewhere(needs catalog.Requirements) (o owners) {
	if d.Roster == nil {
		return o
	}
	for name, info := range d.Roster.Elsewhere() {
		if conn := d.connection(name); (conn == nil || !conn.isOpen()) && len(info.WithSecrets(d.maySecrets(name, true)).Satisfies(needs)) == 0 {
			o.add(d.reservedFor(name))
		}
	}
	return o
}

// runsElsewhere reports whether another hub has an instance that could run the job.
func (r *run) runsElsewhere() bool {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	return err == nil && r.d.elsewhere(needs, r.job().Tenant)
}

// others returns the other connected instances that could run the run's job.
func (d *Dispatcher) others(r *run) (others []*connection) {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	if err != nil {
		return nil
	}
	key, tenant := r.job().Key, r.job().Tenant
	for _, conn := range d.connected() {
		if conn != r.conn && d.mayUse(tenant, conn.name) && !conn.refused.itself(key) && conn.abilities() != nil && len(conn.abilities().Satisfies(needs)) == 0 {
			others = append(others, conn)
		}
	}
	return others
}
