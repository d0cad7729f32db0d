package caddymodule

import (
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/comfyhub/comfyhub/internal/api"
)

// sender is who has sent a request, as far as the sender cannot choose it. It is the one
// place that decides which address a request has and which of its headers about proxies
// count.
type sender struct {
	// peer is the address at the other end of the connection.
	peer string
	// address is the one to limit and to write down: the client's behind proxies that the
	// server names and whose own addresses it skips (`trusted_proxies_strict`), else the
	// peer's. Without strict, Caddy's idea of the client's address is the first one in
	// X-Forwarded-For, which the client writes.
	address string
	// forwarded says that the request came through a proxy, as some header of it says.
	forwarded bool
	// declared says that the peer is a proxy in `trusted_proxies`.
	declared bool
	// hidden says that the request came through a proxy and address is not the client's.
	hidden bool
}

func senderOf(r *http.Request) sender {
	s := sender{peer: peerOf(r.RemoteAddr), forwarded: api.IsForwarded(r.Header)}
	s.address = s.peer
	s.declared, _ = caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	known := s.declared && server != nil && server.TrustedProxiesStrict > 0
	if client, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); known && client != "" {
		s.address = client
	}
	s.hidden = s.forwarded && !known
	return s
}

// peerOf is the address of a peer without its port and zone; that of a Unix socket stays.
func peerOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	return address.Unmap().WithZone("").String()
}

// looseProxies reports whether a server believes what clients write about their address:
// it names proxies, and takes the first address in what they pass on.
func looseProxies(server *caddyhttp.Server) bool {
	if server == nil || server.TrustedProxiesStrict > 0 {
		return false
	}
	// Caddy forgets the configuration of what it has loaded, and keeps the latter to itself.
	proxies := reflect.ValueOf(server).Elem().FieldByName("trustedProxies")
	return server.TrustedProxiesUnix || !proxies.IsNil()
}

// within reports whether an address is in one of the ranges.
func within(ranges []netip.Prefix, address string) bool {
	parsed, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(parsed) })
}

// mayName reports whether a request comes straight from an address in `trust_tenant_from`.
// Whoever came through a proxy has the proxy's address, and who that is nobody can tell: a
// proxy on the hub's own machine would make everybody a caller from 127.0.0.1. A program
// that speaks HTTP/1.0 counts as a proxy, because nginx does unless it is told otherwise, and
// need not say anything in a header.
func (h *Handler) mayName(r *http.Request, s sender) bool {
	return within(h.trusted, s.peer) && !s.forwarded && r.ProtoAtLeast(1, 1) && !h.loose
}
