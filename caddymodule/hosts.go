package caddymodule

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// localSuffixes are the endings of names that nobody can register in the public
// DNS, so that no page on the web can have one.
var localSuffixes = [...]string{
	".localhost", ".local", ".internal", ".home.arpa", ".lan", ".home", ".intranet", ".private", ".localdomain", ".test", ".invalid",
}

// sharedRange is the address range of carriers and overlay networks (RFC 6598),
// which is as private as those that net/netip considers private.
var sharedRange = netip.MustParsePrefix("100.64.0.0/10")

// hostNames are the names that a site answers to. If the name of a web page was
// made to resolve to this machine (DNS rebinding), the browser considers the page
// to be of the same origin as the hub, and only the Host header reveals it.
type hostNames struct {
	names []string // lower case; "*.example.com" stands for one label
	sites []*caddyhttp.MatchHost
}

// namesOf collects the names of a server: those of its sites, of its listeners and
// of the machine, and the ones that the operator has added.
func namesOf(server *caddyhttp.Server, added []string) *hostNames {
	k := &hostNames{}
	for _, name := range added {
		k.names = append(k.names, strings.ToLower(name))
	}
	if name, err := os.Hostname(); err == nil {
		k.names = append(k.names, strings.ToLower(name))
	}
	if server == nil {
		return k
	}
	for _, listen := range server.Listen {
		if address, err := caddy.ParseNetworkAddress(listen); err == nil && address.Host != "" {
			k.names = append(k.names, strings.ToLower(address.Host))
		}
	}
	k.collect(server.Routes)
	return k
}

// collect finds the host matchers of routes, including nested ones: a site is a
// route.
func (k *hostNames) collect(routes caddyhttp.RouteList) {
	for _, route := range routes {
		for _, set := range route.MatcherSets {
			for _, matcher := range set {
				if hosts, ok := matcher.(*caddyhttp.MatchHost); ok {
					k.sites = append(k.sites, hosts)
				}
			}
		}
		for _, handler := range route.Handlers {
			if nested, ok := handler.(*caddyhttp.Subroute); ok {
				k.collect(nested.Routes)
			}
		}
	}
}

// knows reports whether the Host of a request is acceptable: an address, which
// needs no DNS; a name that only a local DNS has; or one of the site's.
func (k *hostNames) knows(r *http.Request) bool {
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if !strings.Contains(name, ".") {
		return true // localhost, a container, a machine of the network; an IPv6 address; none at all
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	if slices.ContainsFunc(localSuffixes[:], func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
		return true
	}
	if slices.ContainsFunc(k.names, func(known string) bool { return matchesName(known, name) }) {
		return true
	}
	return slices.ContainsFunc(k.sites, func(m *caddyhttp.MatchHost) bool {
		match, err := m.MatchWithError(r)
		return err == nil && match
	})
}

// matchesName compares a name with one that may begin with a wildcard.
func matchesName(known, name string) bool {
	if known == "*" || known == name {
		return true
	}
	if suffix, ok := strings.CutPrefix(known, "*"); ok {
		label, ok := strings.CutSuffix(name, suffix)
		return ok && label != "" && !strings.Contains(label, ".")
	}
	return false
}

// checkHostName accepts what may be in a Host header, without a port.
func checkHostName(value string) error {
	if value == "*" {
		return nil
	}
	rest := strings.TrimPrefix(value, "*.")
	if rest == "" || strings.ContainsAny(rest, "/:*@ \t[]") {
		return fmt.Errorf("%q is neither * nor a host name such as hub.example.com or *.example.com", value)
	}
	return nil
}

// withinReach reports whether a request came in on an address that a page on the
// web cannot reach by itself. Over TLS, a page of another name has no certificate
// of ours, and the browser never sends a stored login for another name.
func withinReach(r *http.Request) bool {
	if r.TLS != nil {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return false // there is a proxy in front of a Unix socket
	}
	ip := at.Addr().Unmap()
	return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || sharedRange.Contains(ip)
}
