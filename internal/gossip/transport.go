package gossip

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Transport carries packets and streams between members; each address is an IP and a port.
type Transport = memberlist.Transport

// Packet is what a Transport receives.
type Packet = memberlist.Packet

// transport is another one that calls only what the gate lets it.
type transport struct {
	Transport

	gate *gate
	// dial connects as Transport does.
	dial    func(to netip.AddrPort, timeout time.Duration) (net.Conn, error)
	streams chan net.Conn
	closing sync.Once
	closed  chan struct{} // nobody takes streams any more
	ended   chan struct{} // no streams come any more
	work    sync.WaitGroup
}

// maxBinds bounds the attempts to find a port that is free for TCP and UDP.
const maxBinds = 10

// guard puts the gate before a transport; without one it listens on the network.
func guard(m *memberlist.Config, g *gate, inner Transport) (*transport, error) {
	t := &transport{
		Transport: inner, gate: g, streams: make(chan net.Conn), closed: make(chan struct{}), ended: make(chan struct{}),
		dial: func(to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
			return inner.DialTimeout(to.String(), timeout)
		},
	}
	if inner == nil {
		var err error
		if t.Transport, err = listen(m); err != nil {
			return nil, err
		}
		t.dial = dialFrom(net.ParseIP(m.BindAddr))
	}
	t.work.Go(t.receive)
	return t, nil
}

// listen opens the port of a configuration, and notes which one it is.
func listen(m *memberlist.Config) (*memberlist.NetTransport, error) {
	c := &memberlist.NetTransportConfig{BindAddrs: []string{m.BindAddr}, BindPort: m.BindPort, Logger: m.Logger}
	inner, err := memberlist.NewNetTransport(c)
	for n := 1; err != nil && m.BindPort == 0 && n < maxBinds && strings.Contains(err.Error(), "address already in use"); n++ {
		inner, err = memberlist.NewNetTransport(c) // the port that TCP found was not free for UDP
	}
	if err != nil {
		return nil, err
	}
	if m.BindPort == 0 {
		m.BindPort = inner.GetAutoBindPort()
		m.AdvertisePort = m.BindPort
	}
	return inner, nil
}

// dialFrom connects from the address on which this member listens.
func dialFrom(bind net.IP) func(to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	return func(to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
		dialer := net.Dialer{Timeout: timeout}
		a := to.Addr().Unmap()
		if bind != nil && !bind.IsUnspecified() && bind.IsLoopback() == a.IsLoopback() && (bind.To4() != nil) == a.Is4() {
			dialer.LocalAddr = &net.TCPAddr{IP: bind} // which is also what the other side is told
		}
		return dialer.Dial("tcp", to.String())
	}
}

// receive notes where connections come from, and hands them on.
func (t *transport) receive() {
	for {
		select {
		case <-t.ended:
			return
		case conn := <-t.Transport.StreamCh():
			if from, ok := addrOf(conn.RemoteAddr().String()); ok {
				t.gate.meet(from)
			}
			select {
			case t.streams <- conn:
			case <-t.closed:
				_ = conn.Close()
			}
		}
	}
}

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if a, ok := addrOf(to.Addr); !ok || !t.gate.packets(a) {
		return time.Time{}, fmt.Errorf("%w: %s", errUnmet, to.Addr)
	}
	return t.Transport.WriteTo(b, to.Addr)
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	a, err := netip.ParseAddrPort(to.Addr)
	if err != nil || !t.gate.connections(a.Addr().Unmap()) {
		return nil, fmt.Errorf("%w: %s", errUnmet, to.Addr)
	}
	return t.dial(a, timeout)
}

// Shutdown implements memberlist.Transport.
func (t *transport) Shutdown() error {
	var err error
	t.closing.Do(func() {
		close(t.closed)
		err = t.Transport.Shutdown()
		close(t.ended)
		t.work.Wait()
	})
	return err
}
