package comfyui

import "sync"

// Clients are the clients of the instances that are connected now. Whoever keeps
// the connections sets them; others find them by the names of the instances.
type Clients struct {
	mu     sync.Mutex
	byName map[string]*Client
}

// NewClients returns an empty set.
func NewClients() *Clients { return &Clients{byName: map[string]*Client{}} }

// ByName is the client of an instance, nil while it is not connected.
func (c *Clients) ByName(instance string) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byName[instance]
}

// Set stores the client of an instance that is connected; nil says that it is
// not.
func (c *Clients) Set(instance string, client *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client == nil {
		delete(c.byName, instance)
		return
	}
	c.byName[instance] = client
}
