package fleet

// Changes tells a subscriber which instances have changed, come or gone. Changes are
// coalesced, and none is missed. It is safe for concurrent use.
type Changes struct {
	registry *Registry
	ready    chan struct{}
	names    map[string]bool
}

// Subscribe begins to collect changes. All present instances are the first of them. End
// with [Changes.Close].
func (r *Registry) Subscribe() *Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Changes{registry: r, ready: make(chan struct{}, 1), names: map[string]bool{}}
	r.subscribers[c] = struct{}{}
	for name := range r.instances {
		c.note(name)
	}
	return c
}

// Ready returns a channel that holds a value whenever there is something to take.
func (c *Changes) Ready() <-chan struct{} { return c.ready }

// Take returns the names of the instances that have changed since the last call. An
// agent that is refused counts as one, under its own name.
func (c *Changes) Take() []string {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	names := make([]string, 0, len(c.names))
	for name := range c.names {
		names = append(names, name)
	}
	c.names = map[string]bool{} // a cleared one would stay as large as the fleet
	return names
}

// Close ends the subscription.
func (c *Changes) Close() {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	delete(c.registry.subscribers, c)
}

// note adds a change. The caller holds the registry's lock.
func (c *Changes) note(name string) {
	c.names[name] = true
	select {
	case c.ready <- struct{}{}:
	default: // a value is already waiting
	}
}

// notify tells the subscribers which instances have changed. The caller holds the lock.
func (r *Registry) notify(names ...string) {
	for c := range r.subscribers {
		for _, name := range names {
			c.note(name)
		}
	}
}
