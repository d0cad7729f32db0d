// Package loopback gives tests listeners in memory where they would otherwise listen at
// 127.0.0.1. A connection to one waits by the clock of package time alone, so a test in a
// testing/synctest bubble runs in virtual time: a goroutine that waits for a real socket would
// stop that clock.
package loopback

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/comfyhub/comfyhub/system/network"
)

const prefix = "memory"

// Each listener has a network and connections of its own, since nothing with a channel may
// be shared by two bubbles.
var (
	listeners sync.Map // address: *listener
	last      atomic.Int64
)

var errRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

type listener struct {
	*network.Listener
	network *network.Network
	client  http.Transport
}

// Listen opens a listener at an address that no other has.
func Listen() net.Listener {
	return ListenAt(fmt.Sprintf("%s%d:8188", prefix, last.Add(1)))
}

// ListenAt opens a listener at the address of an earlier one, which has been closed.
func ListenAt(address string) net.Listener {
	n := network.New()
	in, err := n.Listen(address)
	if err != nil {
		panic(err) // the network is new
	}
	l := &listener{Listener: in, network: n}
	l.client.DialContext = Dial
	listeners.Store(address, l)
	return l
}

// Close breaks what nobody has accepted; later connections are refused.
func (l *listener) Close() error {
	listeners.CompareAndDelete(l.Addr().String(), l)
	l.client.CloseIdleConnections()
	return l.Listener.Close()
}

// Dial connects to a listener of this package, or over TCP to any other address.
func Dial(ctx context.Context, transport, address string) (net.Conn, error) {
	if l, ok := listeners.Load(address); ok {
		return l.(*listener).network.Dialer("client")(ctx, transport, address)
	}
	if Has(address) {
		return nil, errRefused
	}
	return (&net.Dialer{}).DialContext(ctx, transport, address)
}

// Has reports whether an address is one of this package, open or not.
func Has(address string) bool { return strings.HasPrefix(address, prefix) }

// Serve is httptest.NewServer on a listener of this package. The caller closes it.
func Serve(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = Listen()
	s.Start()
	return s
}

// Transport reaches listeners of this package, each over connections of its own, and all
// other addresses as the transport it was made from.
type Transport struct{ other http.RoundTripper }

// NewTransport returns what http.DefaultTransport should be in a test binary that uses this
// package, made from what it is.
func NewTransport(other http.RoundTripper) Transport { return Transport{other} }

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if l, ok := listeners.Load(r.URL.Host); ok {
		return l.(*listener).client.RoundTrip(r)
	}
	if Has(r.URL.Host) {
		return nil, errRefused
	}
	return t.other.RoundTrip(r)
}
