package gossip

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// transport is memberlist's own for a network, which calls only what the gate lets it.
type transport struct {
	*memberlist.NetTransport

	gate    *gate
	bind    net.IP
	streams chan net.Conn
	closing sync.Once
	closed  chan struct{} // nobody takes streams any more
	ended   chan struct{} // no streams come any more
	work    sync.WaitGroup
}

// maxBinds bounds the attempts to find a port that is free for TCP and UDP.
const maxBinds = 10

// listen opens the port of a configuration, and notes which one it is.
func listen(m *memberlist.Config, g *gate) (*transport, error) {
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
	t := &transport{
		NetTransport: inner, gate: g, bind: net.ParseIP(m.BindAddr),
		streams: make(chan net.Conn), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	t.work.Go(t.receive)
	return t, nil
}

// receive notes where connections come from, and hands them on.
func (t *transport) receive() {
	for {
		select {
		case <-t.ended:
			return
		case conn := <-t.NetTransport.StreamCh():
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
	return t.NetTransport.WriteToAddress(b, to)
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	a, ok := addrOf(to.Addr)
	if !ok || !t.gate.connections(a) {
		return nil, fmt.Errorf("%w: %s", errUnmet, to.Addr)
	}
	dialer := net.Dialer{Timeout: timeout}
	if t.bind != nil && !t.bind.IsUnspecified() && t.bind.IsLoopback() == a.IsLoopback() && (t.bind.To4() != nil) == a.Is4() {
		dialer.LocalAddr = &net.TCPAddr{IP: t.bind} // which is also what the other side is told
	}
	return dialer.Dial("tcp", to.Addr)
}

// Shutdown implements memberlist.Transport.
func (t *transport) Shutdown() error {
	var err error
	t.closing.Do(func() {
		close(t.closed)
		err = t.NetTransport.Shutdown()
		close(t.ended)
		t.work.Wait()
	})
	return err
}
