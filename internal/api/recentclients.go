package api

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/tenantlru"
)

const (
	// keepClientsFor is how long a place keeps the client ids that were used
	// from it.
	keepClientsFor = 6 * time.Hour
	// maxPerPlace bounds them; the one used longest ago goes.
	maxPerPlace = 32
)

// clientsByPlace remembers which client ids were used from which place: most
// clients name theirs in POST /prompt and at the socket and in nothing else, and
// their bare interrupt must still find their own job.
type clientsByPlace struct {
	clients tenantlru.Map[map[string]time.Time]
}

// note records that a client id was used from a place.
func (a *clientsByPlace) note(tenant, place, client string) {
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
func (a *clientsByPlace) drop(tenant, place, client string) {
	a.clients.Read(tenant, place, func(clients *map[string]time.Time) { delete(*clients, client) })
}

// of lists the client ids used from a place, the latest first.
func (a *clientsByPlace) of(tenant, place string) []string {
	var out []string
	a.clients.Read(tenant, place, func(clients *map[string]time.Time) {
		used := *clients
		for c, at := range used {
			if time.Since(at) > keepClientsFor {
				delete(used, c)
				continue
			}
			out = append(out, c)
		}
		slices.SortFunc(out, func(x, y string) int { return used[y].Compare(used[x]) })
	})
	return out
}

// RecentClients remembers which client ids were used from which place, a browser
// or an address, in the last hours.
type RecentClients struct {
	seen clientsByPlace
	// unproven are client ids by the address of a browser that was given a cookie
	// with their socket and has not sent it yet: it may keep none.
	unproven clientsByPlace
}

// Note records that the requester has used a client id.
func (c *RecentClients) Note(a Requester, client string) {
	if client == "" || a.place() == "" {
		return
	}
	c.seen.note(a.Tenant, a.place(), client)
	if a.browser == "" {
		return
	}
	// It may have been met at the address before the browser had its cookie.
	// Others of that address must not be taken for it any more.
	c.seen.drop(a.Tenant, a.addressPlace(), client)
	if a.fresh && a.address != "" {
		c.unproven.note(a.Tenant, a.addressPlace(), client)
	}
}

// confirm records that a browser has sent its cookie: its clients are not those of
// a browser that keeps none.
func (c *RecentClients) confirm(a Requester) {
	if a.browser == "" || a.address == "" {
		return
	}
	doubtful := c.unproven.of(a.Tenant, a.addressPlace())
	if len(doubtful) == 0 {
		return
	}
	own := c.seen.of(a.Tenant, a.place())
	for _, client := range doubtful {
		if slices.Contains(own, client) {
			c.unproven.drop(a.Tenant, a.addressPlace(), client)
		}
	}
}

// Clients are the client ids that a request may come from, the likeliest
// first: the one that it names, else those used from its place. Calls of custom
// nodes name none.
func (c *RecentClients) Clients(a Requester) []string {
	if a.Client != "" {
		return []string{a.Client}
	}
	clients := c.seen.of(a.Tenant, a.place())
	if a.Page && a.browser == "" && a.address != "" {
		for _, client := range c.unproven.of(a.Tenant, a.addressPlace()) {
			if !slices.Contains(clients, client) {
				clients = append(clients, client)
			}
		}
	}
	return clients
}

// Owner says which jobs are the requester's own: those of one name where a login or a
// client id says who asks; else all that were posted from its place, whatever client ids
// they name, and those of the clients that were met there lately. It is nobody where
// nothing tells the requester from others.
func (c *RecentClients) Owner(a Requester) job.Owner {
	if a.Anonymous() {
		return job.Owner{}
	}
	own := job.Owner{Callers: []string{a.Caller()}}
	if a.Login || a.Client != "" {
		return own
	}
	own.Place = a.place()
	for _, client := range c.Clients(a) {
		a.Client = client
		own.Callers = append(own.Callers, a.Caller())
	}
	return own
}
