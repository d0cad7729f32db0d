package gossip

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// addresses sets where to listen and which address to advertise.
func (g *Gossip) addresses(m *memberlist.Config) error {
	c := g.config
	host, port, err := splitAddress(c.Bind)
	if err != nil {
		return fmt.Errorf("gossip address: %w", err)
	}
	m.BindAddr, m.BindPort, m.AdvertisePort = cmp.Or(host, "0.0.0.0"), port, port
	if c.Key == "" && !IsLoopback(m.BindAddr) {
		return fmt.Errorf("gossip at %s: %w", c.Bind, ErrKeyRequired)
	}
	switch {
	case c.Advertise != "":
		host, port, err := splitAddress(c.Advertise)
		if err != nil {
			return fmt.Errorf("advertised gossip address: %w", err)
		}
		ip, err := net.ResolveIPAddr("ip", host)
		if err != nil {
			return fmt.Errorf("advertised gossip address: %w", err)
		}
		m.AdvertiseAddr, m.AdvertisePort = ip.String(), port
	case isAny(m.BindAddr):
		// With several interfaces, only the one that leads to the others is right;
		// memberlist would take the first private one, often a Docker bridge.
		ip := outward(c.Join)
		if ip == "" {
			break
		}
		if port == 0 {
			if port, err = freePort(); err != nil {
				return fmt.Errorf("gossip address: %w", err)
			}
		}
		m.AdvertiseAddr, m.BindPort, m.AdvertisePort = ip, port, port
	}
	return nil
}

// splitAddress reads host:port, host, or :port.
func splitAddress(s string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(s)
	if err != nil {
		if strings.Contains(err.Error(), "missing port") {
			return strings.Trim(s, "[]"), DefaultPort, nil
		}
		return "", 0, err
	}
	port, err = strconv.Atoi(service)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("address %s: invalid port", s)
	}
	return host, port, nil
}

// IsLoopback reports whether a host, a name or an IP address, is this machine
// and nothing else.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

func isAny(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// elsewhere is an address that no machine has (TEST-NET-2 of RFC 5737): packets to it
// would leave by the default route.
const elsewhere = "198.51.100.1"

// lookupTimeout bounds the lookup of a member's name.
const lookupTimeout = 2 * time.Second

// outward returns the address of this machine that others can reach: the one from which
// packets to the first of them that is not here are sent, or else to everywhere. "" if
// there is none.
func outward(members []string) string {
	for _, member := range append(slices.Clone(members), elsewhere) {
		if ip := localToward(member); ip != "" {
			return ip
		}
	}
	return ""
}

// localToward returns the local address from which packets to a member are sent. It
// sends none itself.
func localToward(member string) string {
	host, port, err := splitAddress(member)
	if err != nil {
		return ""
	}
	dialer := net.Dialer{Timeout: lookupTimeout} // only the name can take time
	conn, err := dialer.Dial("udp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return ""
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || local.IP.IsLoopback() {
		return ""
	}
	return local.IP.String()
}

// freePort finds a port on which nothing listens. Another process may take the port
// before it is used; the caller then fails and is started again.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // a TCP listener has no other
}
