package gossip

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// minRejoin and maxRejoin bound the pauses while no hub is known.
	minRejoin = 200 * time.Millisecond
	maxRejoin = 5 * time.Second
	// healEvery is how often the given addresses are tried while a hub is known:
	// the two halves of a partitioned group do not find each other again by
	// themselves.
	healEvery = time.Minute
)

// keepJoined looks for a hub whenever none is known, until ctx ends.
func (g *Gossip) keepJoined(ctx context.Context) {
	if len(g.config.Join) == 0 {
		return
	}
	pauses, said := retry.New(minRejoin, maxRejoin), false
	for ctx.Err() == nil {
		err := g.join()
		if g.knowsHub() {
			said = false
			pauses.Reset()
			g.sleep(ctx, healEvery)
			continue
		}
		if err != nil && !said {
			said = true
			g.log.Warn("cannot reach the group yet, still trying",
				"join", strings.Join(g.config.Join, " "), "error", strings.Join(strings.Fields(err.Error()), " "), "hint", hint(err))
		}
		g.sleep(ctx, pauses.Next())
	}
}

// sleep waits. While a hub is known it returns early once that is no longer so.
func (g *Gossip) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if !g.knowsHub() {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for g.knowsHub() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-look.C:
		}
	}
}

func (g *Gossip) join() error {
	var addresses []string
	for _, a := range g.config.Join {
		host, port, err := splitAddress(a)
		if err != nil {
			addresses = append(addresses, a)
			continue
		}
		service := strconv.Itoa(port)
		found := lookUp(host)
		for _, ip := range found {
			g.gate.meet(ip) // the operator says so
			addresses = append(addresses, net.JoinHostPort(ip.String(), service))
		}
		if len(found) == 0 {
			addresses = append(addresses, net.JoinHostPort(host, service)) // its error says why
		}
	}
	_, err := g.list.Join(addresses)
	return err
}

// lookUp returns the addresses of a host, none if it has none.
func lookUp(host string) []netip.Addr {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for n := range found {
		found[n] = found[n].Unmap()
	}
	return found
}

func (g *Gossip) knowsHub() bool {
	for _, m := range g.Members() {
		if m.Role == RoleHub {
			return true
		}
	}
	return false
}

// hint suggests what an operator should check.
func hint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "EOF"), strings.Contains(text, "decrypt"), strings.Contains(text, "encrypt"), strings.Contains(text, "reset by peer"):
		return "is the gossip key the same on both sides?"
	case strings.Contains(text, "refused"):
		return "is the hub running there, and does it listen on that address?"
	case strings.Contains(text, "timeout"):
		return "does a firewall let TCP and UDP through?"
	}
	return ""
}
