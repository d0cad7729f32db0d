//go:build unix

package redistest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy stands between a client and a server and loses replies: the server
// has done what it was asked, and the client sees its connection end.
type Proxy struct {
	listener net.Listener
	target   string
	lose     func() bool
	lost     atomic.Int64
	done     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// NewProxy starts a proxy before the server at addr. lose is asked once for
// each packet of replies, by several goroutines; true loses it.
func NewProxy(t testing.TB, addr string, lose func() bool) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: l, target: addr, lose: lose, conns: map[net.Conn]struct{}{}}
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is what Options.URL takes.
func (p *Proxy) URL() string { return "redis://" + p.listener.Addr().String() + patient }

// Lost counts the replies lost so far.
func (p *Proxy) Lost() int { return int(p.lost.Load()) }

func (p *Proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		end := sync.OnceFunc(func() {
			client.Close()
			server.Close()
			p.mu.Lock()
			delete(p.conns, client)
			delete(p.conns, server)
			p.mu.Unlock()
		})
		p.done.Go(func() { defer end(); _, _ = io.Copy(server, client) })
		p.done.Go(func() { defer end(); p.replies(client, server) })
	}
}

// replies passes replies on until one is to be lost.
func (p *Proxy) replies(client, server net.Conn) {
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if p.lose() {
			p.lost.Add(1)
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
