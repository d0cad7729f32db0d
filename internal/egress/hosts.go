package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Hosts are the hosts that may be called. The zero value allows none.
type Hosts struct {
	entries []entry
}

// entry is one item of the operator's list.
type entry struct {
	// name is a host in its canonical form; with under, all names below it.
	name  string
	under bool
	// any means all names and all public addresses.
	any bool
	// network holds addresses; it is only valid if name is empty and any is false.
	network netip.Prefix
	port    string
}

// httpsPort is the port that an entry without one allows.
const httpsPort = "443"

// ParseHosts reads a list of hosts. Each item is a host name, "*.example.com" for all
// names below one, an IP address, a CIDR, or "*" for all public hosts; all but a CIDR
// may have a port after a colon, an IPv6 address then in brackets. The default port is
// 443. Private addresses are called only if an IP address or a CIDR in the list
// contains them, whatever name leads there.
func ParseHosts(items []string) (Hosts, error) {
	var h Hosts
	for _, item := range items {
		e, err := parseEntry(item)
		if err != nil {
			return Hosts{}, err
		}
		h.entries = append(h.entries, e)
	}
	return h, nil
}

// Empty reports whether no host may be called.
func (h Hosts) Empty() bool { return len(h.entries) == 0 }

func parseEntry(item string) (entry, error) {
	wrong := func(why string) (entry, error) { return entry{}, fmt.Errorf("%q: %s", item, why) }
	if network, err := netip.ParsePrefix(item); err == nil {
		if network != network.Masked() {
			return wrong("the address has bits beyond the length of the prefix")
		}
		return entry{network: network, port: httpsPort}, nil
	}
	if ip, err := netip.ParseAddr(item); err == nil {
		return addressEntry(ip, httpsPort), nil
	}
	host, port := item, httpsPort
	if strings.Contains(item, ":") {
		var err error
		if host, port, err = net.SplitHostPort(item); err != nil {
			return wrong("must be a host, *.host, an address, a CIDR or *, perhaps with a port, and no URL")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return wrong("the port must be a number from 1 to 65535")
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return addressEntry(ip, port), nil
	}
	if host == "*" {
		return entry{any: true, port: port}, nil
	}
	name, under := strings.CutPrefix(host, "*.")
	name, err := canonical(name)
	if err != nil {
		return wrong("must be a host, *.host, an address, a CIDR or *, perhaps with a port, and no URL")
	}
	return entry{name: name, under: under, port: port}, nil
}

func addressEntry(ip netip.Addr, port string) entry {
	ip = ip.Unmap().WithZone("")
	return entry{network: netip.PrefixFrom(ip, ip.BitLen()), port: port}
}

var errName = errors.New("egress: not the name of a host")

// canonical returns a host name in lower case, in ASCII and without a dot at its end.
// A name whose last part is a number is none: some resolvers take it for an address.
func canonical(name string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
	if err != nil || ascii == "" || len(ascii) > 253 {
		return "", errName
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 {
			return "", errName
		}
	}
	last := ascii[strings.LastIndexByte(ascii, '.')+1:]
	if last[0] >= '0' && last[0] <= '9' {
		return "", errName
	}
	return ascii, nil
}

// Check reports why a URL must not be called; nil if it may be, as far as the address
// allows to which its name will lead. The error is a *[RefusedError].
func (h Hosts) Check(u *url.URL) error {
	switch {
	case u.Scheme != "https":
		return &RefusedError{"only https:// URLs may be called"}
	case u.Opaque != "" || u.Host == "":
		return &RefusedError{"the URL has no host"}
	case u.User != nil:
		return &RefusedError{"the URL has a user name"}
	}
	port := u.Port()
	if port == "" {
		port = httpsPort
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" || !slices.ContainsFunc(h.entries, func(e entry) bool { return e.port == port && e.hasAddress(ip.Unmap()) }) {
			return errNotAllowed
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || !h.safe(netip.AddrPortFrom(ip.Unmap(), uint16(n))) {
			return errAddress
		}
		return nil
	}
	name, err := canonical(host)
	if err != nil {
		return &RefusedError{"the URL has no valid host"}
	}
	if slices.ContainsFunc(h.entries, func(e entry) bool { return e.port == port && e.hasName(name) }) {
		return nil
	}
	return errNotAllowed
}

func (e entry) hasAddress(ip netip.Addr) bool { return e.any || e.network.Contains(ip) }

func (e entry) hasName(name string) bool {
	switch {
	case e.any:
		return true
	case e.name == "":
		return false
	case e.under:
		return strings.HasSuffix(name, "."+e.name)
	}
	return name == e.name
}

// RefusedError says why a URL is not called. It names no address and can be shown to
// whoever sent the URL.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

var (
	errNotAllowed = &RefusedError{"the hub's operator does not allow this host"}
	errAddress    = &RefusedError{"the host has an address that the hub may not call"}
)
