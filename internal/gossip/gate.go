package gossip

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// errUnmet means that gossip was to call an address of which only words are known.
var errUnmet = errors.New("nothing has come from this address, which a member says is its own")

const (
	// maxMet bounds the addresses that are remembered, of some 100 bytes each.
	maxMet = 50_000
	// unmetFor is how long reports of a member whose address has not been met are left
	// out without a word: its first connection may still be on its way.
	unmetFor = 5 * time.Second
)

// gate decides which addresses may be called. Each member says itself where it is, and
// others pass that on, so a stolen machine can name any address. A connection to the
// gossip port that came from an address shows that somebody there takes part; a datagram
// does not, since its sender may be anything. The zero value lets everything through: it
// is for groups without a key, which are on loopback.
type gate struct {
	// keyed is set where there is a key, and hub for a hub.
	keyed, hub bool
	// expects reports whether the operator expects members at an address. It may be nil.
	expects func(netip.Addr) bool

	mu  sync.Mutex
	met map[netip.Addr]time.Time // and when last
}

// meet notes that an address is of somebody who takes part.
func (g *gate) meet(a netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.met == nil {
		g.met = map[netip.Addr]time.Time{}
	}
	g.met[a.Unmap()] = time.Now()
	if len(g.met) > maxMet {
		oldest, at := a, time.Now()
		for other, when := range g.met {
			if when.Before(at) {
				oldest, at = other, when
			}
		}
		delete(g.met, oldest)
	}
}

// proven reports whether a member may be taken at its word that it is at an address.
func (g *gate) proven(a netip.Addr) bool {
	if !g.keyed {
		return true
	}
	g.mu.Lock()
	_, met := g.met[a.Unmap()]
	g.mu.Unlock()
	return met || g.expects != nil && g.expects(a.Unmap())
}

// packets reports whether datagrams may be sent to an address. They go to ordinary
// addresses that are not proven, too, for members must find each other; but never to this
// machine's own, to link-local ones such as the metadata services of clouds, or to groups.
func (g *gate) packets(a netip.Addr) bool {
	return g.proven(a) || a.Unmap().IsGlobalUnicast() && a.Zone() == ""
}

// connections reports whether connections may be opened to an address. Agents open some to
// hubs that they have only heard of; hubs wait for the agents' and for the other hubs'.
func (g *gate) connections(a netip.Addr) bool {
	return g.proven(a) || !g.hub && g.packets(a)
}

// addrOf returns the address of a text host:port, or of what a connection says.
func addrOf(text string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap(), err == nil
}
