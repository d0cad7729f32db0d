// Package freeport chooses ports of loopback for programs that are started a
// moment later: by tests, and by demonstrations.
//
// To listen at port 0, close, and hand the number on works nearly always. Until
// the program listens, the system may give that port to any other program, and
// while tests of several packages run at once it now and then does; also when a
// program is stopped and started again at its port. The ports of this package
// are none that the system gives away by itself, and no two processes that use
// this package get the same.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that are given: below those that systems give away by themselves
// (from 32768 on Linux, from 49152 elsewhere), in blocks. The first port of a
// block is its lock.
const (
	lowest    = 10_000
	blocks    = 220
	blockSize = 100
)

// ErrNone says that all ports are taken.
var ErrNone = errors.New("freeport: no port of loopback is free for TCP and UDP")

// ring is how many blocks a process takes before it gives its first ports again. A program
// that was killed gets its port back later, and whole test suites are busy meanwhile.
const ring = 16

// chooser gives the ports of its blocks, one after the other.
type chooser struct {
	mu     sync.Mutex
	blocks []*block
	at     int // the block that gives them now
}

// block is some ports that belong to this process.
type block struct {
	lock  net.Listener // open as long as the process lives
	first int          // the port of lock
	given int          // the last one given, from 0
}

// own are the blocks of this process.
var own chooser

// Address is an address of loopback, host:port, whose port nobody listens at,
// over TCP or UDP.
func Address() (string, error) { return Addresses(1) }

// Addresses gives the first of n such addresses with consecutive ports. There may be
// 99 in a row.
func Addresses(n int) (string, error) { return own.choose(n) }

func (c *chooser) choose(n int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n >= blockSize {
		return "", ErrNone
	}
	for range 2 * ring {
		if len(c.blocks) > 0 {
			if port := c.blocks[c.at].choose(n); port != 0 {
				return address(port), nil
			}
		}
		c.next()
	}
	return "", ErrNone
}

// next goes on to a new block, or around the ring once that is complete.
func (c *chooser) next() {
	if len(c.blocks) < ring {
		if b := claim(); b != nil {
			c.at = len(c.blocks)
			c.blocks = append(c.blocks, b)
			return
		}
	}
	if len(c.blocks) > 0 {
		c.at = (c.at + 1) % len(c.blocks)
		c.blocks[c.at].given = 0
	}
}

// choose gives the first of n ports behind the last one that was given, or 0.
func (b *block) choose(n int) int {
	for at := b.given + 1; at+n <= blockSize; at++ {
		if free(b.first+at, n) {
			b.given = at + n - 1
			return b.first + at
		}
	}
	return 0
}

// claim finds a block that no process has.
func claim() *block {
	for _, n := range rand.Perm(blocks) {
		first := lowest + n*blockSize
		lock, err := net.Listen("tcp", address(first))
		if err == nil {
			return &block{lock: lock, first: first}
		}
	}
	return nil
}

// free reports whether nobody listens at n ports from one on.
func free(port, n int) bool {
	for ; n > 0; n, port = n-1, port+1 {
		tcp, err := net.Listen("tcp", address(port))
		if err != nil {
			return false
		}
		tcp.Close()
		udp, err := net.ListenPacket("udp", address(port))
		if err != nil {
			return false
		}
		udp.Close()
	}
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
