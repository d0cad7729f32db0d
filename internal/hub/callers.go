package hub

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/recent"
)

const (
	// acquaintanceFor is how long a place keeps the client ids that were used
	// from it.
	acquaintanceFor = 6 * time.Hour
	// maxPerPlace bounds them; the one used longest ago goes.
	maxPerPlace = 32
)

// acquaintances remember which client ids were used from which place: most
// clients name theirs in POST /prompt and at the socket and in nothing else, and
// their bare interrupt must still find their own job.
type acquaintances struct {
	clients recent.Map[map[string]time.Time]
}

// note records that a client id was used from a place.
func (a *acquaintances) note(tenant, place, client string) {
	a.clients.Change(tenant, place, func(clients *map[string]time.Time) {
		if *clients == nil {
			*clients = map[string]time.Time{}
		}
		used := *clients
		used[client] = time.Now()
		if len(used) <= maxPerPlace {
			return
		}
		oldest := client
		for c, at := range used {
			if at.Before(used[oldest]) {
				oldest = c
			}
		}
		delete(used, oldest)
	})
}

// drop forgets that a client id was used from a place.
func (a *acquaintances) drop(tenant, place, client string) {
	a.clients.Read(tenant, place, func(clients *map[string]time.Time) { delete(*clients, client) })
}

// of lists the client ids used from a place, the latest first.
func (a *acquaintances) of(tenant, place string) []string {
	var out []string
	a.clients.Read(tenant, place, func(clients *map[string]time.Time) {
		used := *clients
		for c, at := range used {
			if time.Since(at) > acquaintanceFor {
				delete(used, c)
				continue
			}
			out = append(out, c)
		}
		slices.SortFunc(out, func(x, y string) int { return used[y].Compare(used[x]) })
	})
	return out
}

// recentClients are the client ids that were used lately from each place.
type recentClients struct {
	seen acquaintances
	// unproven are client ids by the address of a browser that was given a cookie
	// with their socket and has not sent it yet: it may keep none.
	unproven acquaintances
}

// meet notes that a client id was used by the asker.
func (c *recentClients) meet(a asker, client string) {
	if client == "" || a.place() == "" {
		return
	}
	c.seen.note(a.tenant, a.place(), client)
	if a.browser == "" {
		return
	}
	// It may have been met at the address before the browser had its cookie.
	// Others of that address must not be taken for it any more.
	c.seen.drop(a.tenant, a.addressPlace(), client)
	if a.fresh && a.address != "" {
		c.unproven.note(a.tenant, a.addressPlace(), client)
	}
}

// proven notes that a browser has sent its cookie: its clients are not those of
// a browser that keeps none.
func (c *recentClients) proven(a asker) {
	if a.browser == "" || a.address == "" {
		return
	}
	doubtful := c.unproven.of(a.tenant, a.addressPlace())
	if len(doubtful) == 0 {
		return
	}
	own := c.seen.of(a.tenant, a.place())
	for _, client := range doubtful {
		if slices.Contains(own, client) {
			c.unproven.drop(a.tenant, a.addressPlace(), client)
		}
	}
}

// clientsOf are the client ids that a request may come from, the likeliest
// first: the one that it names, else those used from its place. Calls of custom
// nodes name none.
func (c *recentClients) clientsOf(a asker) []string {
	if a.client != "" {
		return []string{a.client}
	}
	clients := c.seen.of(a.tenant, a.place())
	if a.page && a.browser == "" && a.address != "" {
		for _, client := range c.unproven.of(a.tenant, a.addressPlace()) {
			if !slices.Contains(clients, client) {
				clients = append(clients, client)
			}
		}
	}
	return clients
}

// callersOf are the names under which jobs are the asker's own: one where a
// login or a client id says who asks, else the place and every client that was
// met there. It is none where nothing tells the asker from others.
func (c *recentClients) callersOf(a asker) []string {
	if a.nobody() {
		return nil
	}
	callers := []string{a.caller()}
	if a.login || a.client != "" {
		return callers
	}
	for _, client := range c.clientsOf(a) {
		a.client = client
		callers = append(callers, a.caller())
	}
	return callers
}
