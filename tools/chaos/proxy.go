package main

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between two programs and disturbs what passes: it cuts connections,
// refuses new ones, holds everything back, slows it down, or loses replies.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	refuse  bool
	lossy   float64       // the share of new connections that are refused
	lose    bool          // ends each connection at its next reply, which is lost
	delay   time.Duration // of each packet, in each direction
	flowing chan struct{} // closed unless everything is held back

	refused atomic.Int64 // connections
}

// newProxy starts a proxy on a free port of the loopback interface.
func newProxy(target string) (*proxy, error) { return newProxyAt("127.0.0.1:0", target) }

// newProxyAt starts a proxy at an address.
func newProxyAt(address, target string) (*proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}, flowing: make(chan struct{})}
	close(p.flowing)
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	p.listener.Close()
	p.heal()
	p.cut()
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as from a machine that has lost power
		}
		c.Close()
	}
}

// part cuts all connections and refuses new ones until heal.
func (p *proxy) part() {
	p.set(func() { p.refuse = true })
	p.cut()
}

// hold keeps connections open and passes nothing until heal.
func (p *proxy) hold() { p.set(func() { p.flowing = make(chan struct{}) }) }

// slow delays each packet until heal.
func (p *proxy) slow(delay time.Duration) { p.set(func() { p.delay = delay }) }

// loseReplies ends connections at their next reply until heal: the server has done
// what it was asked to do, but the client never learns of it.
func (p *proxy) loseReplies() { p.set(func() { p.lose = true }) }

// heal lets everything pass again.
func (p *proxy) heal() {
	p.set(func() {
		p.refuse, p.lossy, p.lose, p.delay = false, 0, false, 0
		select {
		case <-p.flowing:
		default:
			close(p.flowing)
		}
	})
}

func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.connect(client)
	}
}

func (p *proxy) connect(client net.Conn) {
	p.mu.Lock()
	refuse := p.refuse || rand.Float64() < p.lossy
	p.mu.Unlock()
	if refuse {
		p.refused.Add(1)
		client.Close()
		return
	}
	server, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	p.set(func() { p.conns[client], p.conns[server] = struct{}{}, struct{}{} })
	end := sync.OnceFunc(func() {
		client.Close()
		server.Close()
		p.set(func() { delete(p.conns, client); delete(p.conns, server) })
	})
	go func() { defer end(); p.pass(server, client, false) }()
	go func() { defer end(); p.pass(client, server, true) }()
}

// pass copies from one side to the other until either ends.
func (p *proxy) pass(to, from net.Conn, replies bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			flowing, delay, lose := p.flowing, p.delay, p.lose && replies
			p.mu.Unlock()
			if lose {
				return
			}
			<-flowing
			if delay > 0 {
				<-time.After(delay)
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
