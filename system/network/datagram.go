package network

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// held is how many datagrams wait for a process that does not take them. More are lost.
const held = 256

// Port is where a process sends and receives datagrams.
type Port struct {
	network *Network
	host    string
	in      chan Datagram
	closed  chan struct{}
	once    sync.Once
}

// Datagram is one that was received.
type Datagram struct {
	Data []byte
	// From is the host that has sent it.
	From string
	// Due is when it arrives.
	Due time.Time
}

// OpenPort opens a port at an address, host:port.
func (n *Network) OpenPort(address string) (*Port, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	address = n.named(address)
	if n.ports[address] != nil {
		return nil, opError("listen", syscall.EADDRINUSE)
	}
	p := &Port{network: n, host: hostOf(address), in: make(chan Datagram, held), closed: make(chan struct{})}
	n.ports[address] = p
	return p, nil
}

// Send sends a datagram to an address. Like all datagrams it may be lost without a word: on a
// silent link, at a closed port, or when too many wait there.
func (p *Port) Send(data []byte, address string) {
	select {
	case <-p.closed:
		return
	default:
	}
	n := p.network
	n.mu.Lock()
	defer n.mu.Unlock()
	address = n.named(address)
	to := hostOf(address)
	l, there := n.links[path{p.host, to}], n.ports[address]
	if l.Silent || n.down[p.host] || there == nil {
		return
	}
	select {
	case there.in <- Datagram{append([]byte(nil), data...), p.host, time.Now().Add(l.Delay)}:
	default:
	}
}

// Receive waits for a datagram. A frozen host receives none: they wait for it.
func (p *Port) Receive() (Datagram, error) {
	var d Datagram
	select {
	case d = <-p.in:
	case <-p.closed:
		return d, net.ErrClosed
	}
	for {
		p.network.mu.Lock()
		down, changed := p.network.down[p.host], p.network.changed
		p.network.mu.Unlock()
		wait, now := changed, (<-chan time.Time)(nil)
		if !down {
			if !d.Due.After(time.Now()) {
				return d, nil
			}
			timer := time.NewTimer(time.Until(d.Due))
			defer timer.Stop()
			now = timer.C
		}
		select {
		case <-now:
		case <-wait:
		case <-p.closed:
			return d, net.ErrClosed
		}
	}
}

// Close gives the port back.
func (p *Port) Close() error {
	p.network.mu.Lock()
	for address, open := range p.network.ports {
		if open == p {
			delete(p.network.ports, address)
		}
	}
	p.network.mu.Unlock()
	p.shut()
	return nil
}

func (p *Port) shut() { p.once.Do(func() { close(p.closed) }) }
