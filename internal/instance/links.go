package instance

import (
	"maps"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// Links are the links to the instances that this hub is connected to.
type Links struct {
	// Published is told which instances are connected.
	Published *comfyui.Clients
	// Sets are those that could take a job.
	Sets FreeSets

	mu    sync.Mutex
	named map[string]*Link
	// sorted are all by name; nil when one has come or gone.
	sorted []*Link
}

// publish publishes the client of a connection, or nil when its instance cannot be asked.
func (ls *Links) publish(conn *Link, client *comfyui.Client) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.named[conn.Name] == conn { // one that is closing has no say about its successor
		ls.Published.Set(conn.Name, client)
	}
}

// Put replaces the connection to an instance; nil if there is none any more. It returns the one
// before.
func (ls *Links) Put(name string, conn *Link) (before *Link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if before = ls.named[name]; before != nil {
		ls.Published.Set(name, nil)
	}
	if delete(ls.named, name); conn != nil {
		ls.named[name] = conn
	}
	ls.sorted = nil
	return before
}

// Close closes all connections.
func (ls *Links) Close() {
	ls.mu.Lock()
	conns := ls.named
	ls.named, ls.sorted = map[string]*Link{}, nil
	ls.mu.Unlock()
	var closing sync.WaitGroup // each may be waiting for an instance that does not answer
	for name, conn := range conns {
		ls.Published.Set(name, nil)
		closing.Go(conn.close)
	}
	closing.Wait()
}

// Get returns the connection to an instance, or nil.
func (ls *Links) Get(instance string) *Link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.named[instance]
}

// Open returns the connections whose instances can be asked, by name.
func (ls *Links) Open() []*Link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.sorted == nil {
		ls.sorted = slices.SortedFunc(maps.Values(ls.named), byName)
	}
	out := make([]*Link, 0, len(ls.sorted))
	for _, conn := range ls.sorted {
		if conn.IsOpen() {
			out = append(out, conn)
		}
	}
	return out
}

// Servers returns the connected instances that are ComfyUI, with all its pages and lists.
func (ls *Links) Servers() []*Link {
	return slices.DeleteFunc(ls.Open(), func(c *Link) bool { return c.Kind != fleet.KindComfyUI })
}

// Clients returns the clients of all connected ComfyUIs, by their names.
func (ls *Links) Clients() []*comfyui.Client {
	var out []*comfyui.Client
	for _, conn := range ls.Servers() {
		out = append(out, conn.Client)
	}
	return out
}

// ClientOf returns the client of a connected ComfyUI; nil if it is not connected, or if it is not
// known yet what it can run.
func (ls *Links) ClientOf(instance string) *comfyui.Client {
	if conn := ls.Get(instance); conn != nil && conn.IsOpen() && conn.Kind == fleet.KindComfyUI {
		return conn.Client
	}
	return nil
}

// First returns the connected ComfyUI whose name sorts first, nil if there is none. Names can be
// chosen freely, so it is one to ask, not one to trust.
func (ls *Links) First() *comfyui.Client {
	if conns := ls.Servers(); len(conns) > 0 {
		return conns[0].Client
	}
	return nil
}

// Version returns the lowest version among the connected ComfyUIs: what the whole fleet supports.
// It returns the zero Version while none is connected.
func (ls *Links) Version() comfyui.Version {
	var lowest comfyui.Version
	for n, conn := range ls.Servers() {
		if v := conn.Capability(); n == 0 || v.Compare(lowest) < 0 {
			lowest = v
		}
	}
	return lowest
}

// Flags returns the features that all connected ComfyUIs announce.
func (ls *Links) Flags() comfyui.Flags {
	var all []comfyui.Flags
	for _, conn := range ls.Servers() {
		all = append(all, conn.announces())
	}
	return comfyui.AgreedFlags(all)
}

// Names returns the names of the connected instances.
func (ls *Links) Names() map[string]bool {
	names := map[string]bool{}
	for _, conn := range ls.Open() {
		names[conn.Name] = true
	}
	return names
}

// of returns the open connection that owns the client, or nil.
func (ls *Links) of(c *comfyui.Client) *Link {
	for _, conn := range ls.Open() {
		if conn.Client == c {
			return conn
		}
	}
	return nil
}

// Unloaded notes that an instance was told to unload its models.
func (ls *Links) Unloaded(instance *comfyui.Client) {
	for _, conn := range ls.Open() {
		if conn.Client == instance {
			conn.Loads(nil)
		}
	}
}
