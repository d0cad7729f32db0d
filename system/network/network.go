// Package network is a network in memory whose links can be cut, silenced, slowed and
// reset, in each direction by itself. All waiting goes by the clock of package time, so
// that inside a testing/synctest bubble hours pass in no time.
//
// A host is a name, and has an IP address for those who want one. Whoever listens does so at
// "host:port"; a connection runs between two hosts, and what is on its way obeys the state of
// the link in its direction. Datagrams do so too, but what a link does not deliver is lost.
package network

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Network connects hosts. It is safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
	ports     map[string]*Port
	links     map[path]Link
	lives     map[string]int  // how often each host's process was killed
	hosts     []string        // in the order of their IP addresses
	down      map[string]bool // hosts whose machine is gone: nobody answers there
	conns     map[*conn]struct{}
	lastPort  int
	// changed is closed and replaced when a link or a host changes.
	changed chan struct{}
}

// path is one direction between two hosts.
type path struct{ from, to string }

// Link is the state of one direction between two hosts. The zero value delivers at once.
type Link struct {
	// Delay is how long each byte is under way.
	Delay time.Duration
	// Silent keeps what is sent, and new connections, until the link is no longer silent:
	// neither end is told.
	Silent bool
	// Lose is asked about each write on a connection; true loses it, and the connection breaks.
	// Default: nothing is lost. It must be safe for concurrent use.
	Lose func() bool
}

// New returns a network on which everybody reaches everybody at once.
func New() *Network {
	return &Network{
		listeners: map[string]*Listener{}, ports: map[string]*Port{}, links: map[path]Link{}, lives: map[string]int{}, down: map[string]bool{},
		conns: map[*conn]struct{}{}, lastPort: 20_000, changed: make(chan struct{}),
	}
}

// Set changes the link from one host to another. What is under way obeys it from now on.
func (n *Network) Set(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[path{from, to}] = l
	n.change()
}

// SetBoth changes both directions between two hosts.
func (n *Network) SetBoth(a, b string, l Link) {
	n.Set(a, b, l)
	n.Set(b, a, l)
}

// Freeze silences a host in all directions, as SIGSTOP of its only process does for
// everybody else. What the process reads and what it waits for, it learns when Thaw ends
// this: no deadline of a connection passes before. Kill ends it as well.
func (n *Network) Freeze(host string) { n.setDown(host, true) }

// Thaw ends Freeze.
func (n *Network) Thaw(host string) { n.setDown(host, false) }

func (n *Network) setDown(host string, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = down
	n.change()
}

// Awake waits while a host is frozen.
func (n *Network) Awake(host string) {
	for {
		n.mu.Lock()
		down, changed := n.down[host], n.changed
		n.mu.Unlock()
		if !down {
			return
		}
		<-changed
	}
}

// change wakes whoever waits for links. The caller holds mu.
func (n *Network) change() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Reset breaks all connections between two hosts, as a router that forgets them does.
func (n *Network) Reset(a, b string) {
	n.breakConns(func(p path) bool { return p == path{a, b} || p == path{b, a} })
}

// Kill breaks all connections of a host and closes its listeners and ports, as the kernel
// does when its process is killed. Later connections are refused until it listens again, and
// what the process had to connect with connects no more.
func (n *Network) Kill(host string) {
	n.mu.Lock()
	n.lives[host]++
	if n.down[host] {
		delete(n.down, host)
		n.change()
	}
	for address, l := range n.listeners {
		if hostOf(address) == host {
			delete(n.listeners, address)
			l.shut()
		}
	}
	for address, p := range n.ports {
		if hostOf(address) == host {
			delete(n.ports, address)
			p.shut()
		}
	}
	n.mu.Unlock()
	n.breakConns(func(p path) bool { return p.from == host || p.to == host })
}

func (n *Network) breakConns(affected func(path) bool) {
	n.mu.Lock()
	var broken []*conn
	for c := range n.conns {
		if affected(c.out.path) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// state is that of one direction.
type state struct {
	Link
	open bool // it delivers now
	// from and to say that the host there is frozen.
	from, to bool
	// changed is closed when any of it may change.
	changed <-chan struct{}
}

func (n *Network) state(p path) state {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := state{Link: n.links[p], from: n.down[p.from], to: n.down[p.to], changed: n.changed}
	s.open = !s.Silent && !s.from && !s.to
	return s
}

// Listen opens a listener at an address, host:port.
func (n *Network) Listen(address string) (*Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	given := address
	address = n.named(address)
	if n.listeners[address] != nil {
		return nil, opError("listen", syscall.EADDRINUSE)
	}
	l := &Listener{network: n, address: address, given: given, waiting: make(chan *conn, 128), done: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Dialer returns how the process that now runs on a host connects to others.
func (n *Network) Dialer(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	life := n.lives[from]
	n.mu.Unlock()
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		return n.dial(ctx, from, life, address)
	}
}

// IP is the IP address of a host.
func (n *Network) IP(host string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := slices.Index(n.hosts, host)
	if at < 0 {
		at = len(n.hosts)
		n.hosts = append(n.hosts, host)
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + at)}) // #nosec G115 -- few
}

// named is an address with the name of its host, if it has none yet. The caller holds mu.
func (n *Network) named(address string) string {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Is4() {
		return address
	}
	if at := int(a.Addr().As4()[3]) - 1; at >= 0 && at < len(n.hosts) {
		return net.JoinHostPort(n.hosts[at], strconv.Itoa(int(a.Port())))
	}
	return address
}

func (n *Network) dial(ctx context.Context, from string, life int, address string) (net.Conn, error) {
	n.mu.Lock()
	address = n.named(address)
	n.mu.Unlock()
	to := hostOf(address)
	for _, p := range []path{{from, to}, {to, from}} { // SYN, and its answer
		if err := n.pass(ctx, p); err != nil {
			n.Awake(from)
			return nil, opError("dial", err)
		}
	}
	n.mu.Lock()
	l := n.listeners[address]
	if n.lives[from] != life {
		n.mu.Unlock()
		return nil, opError("dial", syscall.ENETDOWN)
	}
	if l == nil {
		n.mu.Unlock()
		return nil, opError("dial", syscall.ECONNREFUSED)
	}
	n.lastPort++
	ours := &conn{network: n, local: Addr(net.JoinHostPort(from, strconv.Itoa(n.lastPort))), remote: Addr(address)}
	theirs := &conn{network: n, local: ours.remote, remote: ours.local}
	ours.out, ours.in = newHalf(n, path{from, to}), newHalf(n, path{to, from})
	theirs.out, theirs.in = ours.in, ours.out
	n.conns[ours], n.conns[theirs] = struct{}{}, struct{}{}
	n.mu.Unlock()
	select {
	case l.waiting <- theirs:
		return ours, nil
	case <-l.done:
		_ = ours.Close()
		return nil, opError("dial", syscall.ECONNREFUSED)
	case <-ctx.Done():
		_ = ours.Close()
		return nil, opError("dial", ctx.Err())
	}
}

// pass waits as long as a packet takes.
func (n *Network) pass(ctx context.Context, p path) error {
	for {
		s := n.state(p)
		changed := s.changed
		var due <-chan time.Time
		if s.open {
			if s.Delay == 0 {
				return ctx.Err()
			}
			timer := time.NewTimer(s.Delay)
			defer timer.Stop()
			due, changed = timer.C, nil
		}
		select {
		case <-due:
			return nil
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// Open is how many ends of connections are open.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

func opError(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
