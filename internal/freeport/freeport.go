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

// chooser gives the ports of one block, one after the other.
type chooser struct {
	mu    sync.Mutex
	lock  net.Listener // open as long as the process lives
	first int          // the port of lock
	given int          // the last one given, from 0
}

// own is the block of this process.
var own chooser

// Address is an address of loopback, host:port, whose port nobody listens at,
// over TCP or UDP.
func Address() (string, error) { return Addresses(1) }

// Addresses gives the first of n such addresses with consecutive ports.
func Addresses(n int) (string, error) { return own.choose(n) }

func (c *chooser) choose(n int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil && !c.claim() {
		return "", ErrNone
	}
	// From where it ended last time and once around: a port that was given long
	// ago may be free again.
	for range blockSize {
		at := c.given + 1
		if at+n > blockSize {
			at = 1
		}
		c.given = at
		if free(c.first+at, n) {
			c.given += n - 1
			return address(c.first + at), nil
		}
	}
	return "", ErrNone
}

// claim finds a block that no other process has.
func (c *chooser) claim() bool {
	for _, block := range rand.Perm(blocks) {
		first := lowest + block*blockSize
		lock, err := net.Listen("tcp", address(first))
		if err == nil {
			c.lock, c.first = lock, first
			return true
		}
	}
	return false
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
