package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
)

// ear is what stands in front of one member of the gossip: all that others send to
// that member passes through it, over UDP and TCP. What the member sends itself does
// not, so that a closed ear makes it deaf and not dumb, as a firewall between two
// networks often does.
type ear struct {
	streams *proxy
	packets net.PacketConn
	member  net.Addr

	mu    sync.Mutex
	lose  float64       // the share of packets and of new connections that get lost
	delay time.Duration // of a packet at most; a later one can overtake it

	lost, late atomic.Int64 // packets
}

// newEar starts an ear. It listens at one port over UDP and TCP, which the member
// must advertise.
func newEar(member string) (*ear, error) {
	at, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	to, err := net.ResolveUDPAddr("udp", member)
	if err != nil {
		return nil, err
	}
	e := &ear{member: to}
	if e.packets, err = new(net.ListenConfig).ListenPacket(context.Background(), "udp", at); err != nil {
		return nil, err
	}
	if e.streams, err = newProxyAt(at, member); err != nil {
		return nil, errors.Join(err, e.packets.Close())
	}
	go e.pass()
	return e, nil
}

func (e *ear) addr() string { return e.streams.addr() }

func (e *ear) close() {
	e.packets.Close()
	e.streams.close()
}

// part lets nothing through until heal.
func (e *ear) part() {
	e.set(1, 0)
	e.streams.part()
}

// leak loses half of the packets, and half of the connections, until heal.
func (e *ear) leak() {
	e.set(0.5, 0)
	e.streams.set(func() { e.streams.lossy = 0.5 })
}

// slow delays what comes until heal. Packets get out of order.
func (e *ear) slow() {
	e.set(0, time.Second)
	e.streams.slow(250 * time.Millisecond)
}

func (e *ear) heal() {
	e.set(0, 0)
	e.streams.heal()
}

func (e *ear) set(lose float64, delay time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lose, e.delay = lose, delay
}

// pass forwards packets until the ear is closed. Members answer the address that
// stands in a packet, and not the one that it comes from: nothing passes in the other
// direction.
func (e *ear) pass() {
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := e.packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the member was not there to receive an earlier packet
		}
		e.mu.Lock()
		lose, delay := e.lose, e.delay
		e.mu.Unlock()
		switch {
		case rand.Float64() < lose:
			e.lost.Add(1)
		case delay > 0:
			e.late.Add(1)
			late := append([]byte(nil), buffer[:n]...)
			time.AfterFunc(rand.N(delay), func() { _, _ = e.packets.WriteTo(late, e.member) })
		default:
			_, _ = e.packets.WriteTo(buffer[:n], e.member)
		}
	}
}

// listen puts an ear in front of a member.
func (s *stage) listen(member string) (*ear, error) {
	e, err := newEar(member)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ears = append(s.ears, e)
	return e, nil
}

// deafness tells how much the faults of the gossip have hit.
func (s *stage) deafness() (lost, late, refused int64) {
	for _, e := range s.ears {
		lost += e.lost.Load()
		late += e.late.Load()
		refused += e.streams.refused.Load()
	}
	return lost, late, refused
}

// earName names an ear: the hubs have the first ones, then come the agents. It is a
// target of its own, since anything else may happen to a member that is deaf.
func earName(n int) string { return fmt.Sprintf("ear-%d", n+1) }

// earKinds returns the faults of the gossip.
func earKinds() []kind {
	base := kind{
		targets: func(s *stage) int { return len(s.ears) },
		at:      earName,
		heal:    func(_ context.Context, s *stage, n int) error { s.ears[n].heal(); return nil },
	}
	one := func(name string, longest time.Duration, how func(*ear)) kind {
		k := base
		k.name, k.shortest, k.longest = name+"-gossip", time.Second, longest
		k.strike = func(s *stage, n int) error { how(s.ears[n]); return nil }
		return k
	}
	return []kind{
		one("part", 30*time.Second, (*ear).part),
		one("leak", 20*time.Second, (*ear).leak),
		one("slow", 20*time.Second, (*ear).slow),
	}
}
