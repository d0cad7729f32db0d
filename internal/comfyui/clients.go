package comfyui

import "sync"

// Clients are the clients of the instances that are connected now. Whoever keeps
// the connections sets them; others find them by the names of the instances.
type Clients struct {
	mu     sync.Mutex
	byName map[string]*Client
	// changed is told of each change, see OnChange.
	changed func(gone, came *Client)
}

// NewClients returns an empty set.
func NewClients() *Clients { return &Clients{byName: map[string]*Client{}} }

// ByName is the client of an instance, nil while it is not connected.
func (c *Clients) ByName(instance string) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byName[instance]
}

// OnChange has f called when the client of an instance comes or goes; the other
// one is nil. f must not wait, nor call the set. Set it before the first Set.
func (c *Clients) OnChange(f func(gone, came *Client)) { c.changed = f }

// Set stores the client of an instance that is connected; nil says that it is
// not.
func (c *Clients) Set(instance string, client *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.byName[instance]
	if client == nil {
		delete(c.byName, instance)
	} else {
		c.byName[instance] = client
	}
	if c.changed != nil && (before != nil || client != nil) {
		c.changed(before, client)
	}
}
