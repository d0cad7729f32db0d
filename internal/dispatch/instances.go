package dispatch

import (
	"slices"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// Instances are the instances that this hub is connected to.
type Instances struct {
	access *Access
	// published is told which instances are connected.
	published *comfyui.Clients
	// sets are those that could take a job.
	sets freeSets
	// watched says that somebody is watching the fleet.
	watched interest

	mu     sync.Mutex
	byName map[string]*connection
}

// publish publishes the client of a connection, or nil when its instance cannot be asked.
func (is *Instances) publish(conn *connection, client *comfyui.Client) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.byName[conn.name] == conn { // one that is closing has no say about its successor
		is.published.Set(conn.name, client)
	}
}

// put replaces the connection to an instance; nil if there is none any more. It returns the one
// before.
func (is *Instances) put(name string, conn *connection) (before *connection) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if before = is.byName[name]; before != nil {
		is.published.Set(name, nil)
	}
	if delete(is.byName, name); conn != nil {
		is.byName[name] = conn
	}
	return before
}

// close closes all connections.
func (is *Instances) close() {
	is.mu.Lock()
	conns := is.byName
	is.byName = map[string]*connection{}
	is.mu.Unlock()
	var closing sync.WaitGroup // each may be waiting for an instance that does not answer
	for name, conn := range conns {
		is.published.Set(name, nil)
		closing.Go(conn.close)
	}
	closing.Wait()
}

// get returns the connection to an instance, or nil.
func (is *Instances) get(instance string) *connection {
	is.mu.Lock()
	defer is.mu.Unlock()
	return is.byName[instance]
}

// open returns the connections whose instances can be asked, by name.
func (is *Instances) open() []*connection {
	is.mu.Lock()
	defer is.mu.Unlock()
	var out []*connection
	for _, conn := range is.byName {
		if conn.isOpen() {
			out = append(out, conn)
		}
	}
	slices.SortFunc(out, func(a, b *connection) int { return strings.Compare(a.name, b.name) })
	return out
}

// servers returns the connected instances that are ComfyUI, with all its pages and lists.
func (is *Instances) servers() []*connection {
	return slices.DeleteFunc(is.open(), func(c *connection) bool { return c.kind != fleet.KindComfyUI })
}

// Clients returns the clients of all connected ComfyUIs, by their names.
func (is *Instances) Clients() []*comfyui.Client {
	var out []*comfyui.Client
	for _, conn := range is.servers() {
		out = append(out, conn.client)
	}
	return out
}

// ClientsOf returns the clients of the connected instances of a kind that run jobs of a
// tenant, by their names.
func (is *Instances) ClientsOf(kind, tenant string) []*comfyui.Client {
	var out []*comfyui.Client
	for _, conn := range is.open() {
		if conn.kind == kind && is.access.mayUse(tenant, conn.name) {
			out = append(out, conn.client)
		}
	}
	return out
}

// ClientOf returns the client of a connected ComfyUI; nil if it is not connected, or if it is not
// known yet what it can run.
func (is *Instances) ClientOf(instance string) *comfyui.Client {
	if conn := is.get(instance); conn != nil && conn.isOpen() && conn.kind == fleet.KindComfyUI {
		return conn.client
	}
	return nil
}

// First returns the connected ComfyUI whose name sorts first, nil if there is none. Names can be
// chosen freely, so it is one to ask, not one to trust.
func (is *Instances) First() *comfyui.Client {
	if conns := is.servers(); len(conns) > 0 {
		return conns[0].client
	}
	return nil
}

// Version returns the lowest version among the connected ComfyUIs: what the whole fleet supports.
// It returns the zero Version while none is connected.
func (is *Instances) Version() comfyui.Version {
	var lowest comfyui.Version
	for n, conn := range is.servers() {
		if v := conn.capability(); n == 0 || v.Compare(lowest) < 0 {
			lowest = v
		}
	}
	return lowest
}

// Flags returns the features that all connected ComfyUIs announce.
func (is *Instances) Flags() comfyui.Flags {
	var all []comfyui.Flags
	for _, conn := range is.servers() {
		all = append(all, conn.announces())
	}
	return comfyui.AgreedFlags(all)
}

// Names returns the names of the connected instances.
func (is *Instances) Names() map[string]bool {
	names := map[string]bool{}
	for _, conn := range is.open() {
		names[conn.name] = true
	}
	return names
}

// others returns the other connected instances that could run the run's job.
func (is *Instances) others(r *run) (others []*connection) {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	if err != nil {
		return nil
	}
	key, tenant := r.job().Key, r.job().Tenant
	for _, conn := range is.open() {
		if conn != r.conn && is.access.mayUse(tenant, conn.name) && !conn.refused.itself(key) && conn.abilities() != nil && len(conn.abilities().Satisfies(needs)) == 0 {
			others = append(others, conn)
		}
	}
	return others
}

// Activities returns what the connected instances are doing, by name.
func (is *Instances) Activities() map[string]Activity {
	is.watched.note()
	connected := is.open()
	all := make(map[string]Activity, len(connected))
	for _, conn := range connected {
		all[conn.name] = activityOf(conn)
	}
	return all
}

// Activity returns what one instance is doing; the zero value if it is not connected.
func (is *Instances) Activity(instance string) Activity {
	if conn := is.get(instance); conn != nil {
		return activityOf(conn)
	}
	return Activity{}
}

// Preview returns the latest picture of the run that this hub follows at an instance, if the run is
// of the given job. The first call for a run finds none: pictures are kept only while somebody asks
// for them.
func (is *Instances) Preview(instance, key string) (comfyui.Binary, bool) {
	conn := is.get(instance)
	if conn == nil {
		return comfyui.Binary{}, false
	}
	r := runsOf(conn)[0]
	if r == nil || r.job().Key != key {
		return comfyui.Binary{}, false
	}
	return r.doing.picture()
}

// Evict takes back what an instance is running for this hub: the run is interrupted, and its job
// goes back to the queue as if it had never been given out. It returns at once, while the instance
// may still be busy, so call it again until the instance is free.
func (is *Instances) Evict(instance string) {
	conn := is.get(instance)
	if conn == nil {
		return
	}
	for _, r := range runsOf(conn) {
		if r != nil {
			r.mail.put(runEvent{kind: evictAsked})
		}
	}
}

// of returns the open connection that owns the client, or nil.
func (is *Instances) of(c *comfyui.Client) *connection {
	for _, conn := range is.open() {
		if conn.client == c {
			return conn
		}
	}
	return nil
}

// Unloaded notes that an instance was told to unload its models.
func (is *Instances) Unloaded(instance *comfyui.Client) {
	for _, conn := range is.open() {
		if conn.client == instance {
			conn.loads(nil)
		}
	}
}
