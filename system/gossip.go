package system

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/system/network"
)

// gossipKey is that of the fleet, and gossipPort where each member listens.
const (
	gossipKey  = "the gossip key of a simulated fleet"
	gossipPort = "7946"
)

// chatter carries the gossip of one process over the network in memory.
type chatter struct {
	w       *World
	at      netip.AddrPort
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	port    *network.Port
	listen  *network.Listener
	packets chan *gossip.Packet
	streams chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// gossipAt is where a host's gossip listens.
func (w *World) gossipAt(host string) string {
	return net.JoinHostPort(w.Net.IP(host).String(), gossipPort)
}

func newChatter(w *World, host string) *chatter {
	at := w.gossipAt(host)
	c := &chatter{
		w: w, at: netip.MustParseAddrPort(at), dial: w.Net.Dialer(host),
		packets: make(chan *gossip.Packet), streams: make(chan net.Conn), closed: make(chan struct{}),
	}
	var err error
	c.port, err = w.Net.OpenPort(at)
	require.NoError(w.t, err)
	c.listen, err = w.Net.Listen(at)
	require.NoError(w.t, err)
	w.work.Go(c.receive)
	w.work.Go(c.accept)
	return c
}

func (c *chatter) receive() {
	for {
		d, err := c.port.Receive()
		if err != nil {
			return
		}
		from := network.Addr(c.w.gossipAt(d.From))
		select {
		case c.packets <- &gossip.Packet{Buf: d.Data, From: from, Timestamp: time.Now()}:
		case <-c.closed:
			return
		}
	}
}

func (c *chatter) accept() {
	for {
		conn, err := c.listen.Accept()
		if err != nil {
			return
		}
		host, port, _ := net.SplitHostPort(conn.RemoteAddr().String())
		from := network.Addr(net.JoinHostPort(c.w.Net.IP(host).String(), port))
		select {
		case c.streams <- fromIP{conn, from}:
		case <-c.closed:
			_ = conn.Close()
			return
		}
	}
}

// fromIP is a connection that says its other end's IP address instead of its name.
type fromIP struct {
	net.Conn

	remote network.Addr
}

func (c fromIP) RemoteAddr() net.Addr { return c.remote }

// FinalAdvertiseAddr implements [gossip.Transport].
func (c *chatter) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return c.at.Addr().AsSlice(), int(c.at.Port()), nil
}

// WriteTo implements [gossip.Transport].
func (c *chatter) WriteTo(b []byte, address string) (time.Time, error) {
	c.port.Send(b, address)
	return time.Now(), nil
}

// PacketCh implements [gossip.Transport].
func (c *chatter) PacketCh() <-chan *gossip.Packet { return c.packets }

// DialTimeout implements [gossip.Transport].
func (c *chatter) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.dial(ctx, "tcp", address)
}

// StreamCh implements [gossip.Transport].
func (c *chatter) StreamCh() <-chan net.Conn { return c.streams }

// Shutdown implements [gossip.Transport].
func (c *chatter) Shutdown() error {
	c.once.Do(func() { close(c.closed) })
	return errors.Join(c.port.Close(), c.listen.Close())
}
