package network

import (
	"net"
	"sync"
)

// Listener takes connections to one address.
type Listener struct {
	network *Network
	address string // with the host's name
	given   string
	waiting chan *conn
	done    chan struct{}
	once    sync.Once
}

// Accept returns the next connection, or net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close gives the address back and breaks the connections that nobody has accepted.
func (l *Listener) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()
	l.shut()
	return nil
}

func (l *Listener) shut() {
	l.once.Do(func() { close(l.done) })
	for {
		select {
		case c := <-l.waiting:
			go func() { _ = c.Close() }()
		default:
			return
		}
	}
}

// Addr is the address as it was given.
func (l *Listener) Addr() net.Addr { return Addr(l.given) }

// Addr is the address of an end of a connection, host:port.
type Addr string

// Network returns "tcp".
func (Addr) Network() string { return "tcp" }

func (a Addr) String() string { return string(a) }
