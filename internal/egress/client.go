package egress

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Bounds of a call. The caller bounds the body, and the time of it all.
const (
	dialTimeout   = 10 * time.Second
	answerTimeout = 20 * time.Second
	maxHeader     = 64 << 10
	maxRedirects  = 3
)

// alwaysDenied are public addresses that lead to a cloud's own services.
var alwaysDenied = netip.MustParsePrefix("168.63.129.16/32")

// Options are for tests; the zero value is right otherwise.
type Options struct {
	// Roots are the trusted certificates. Default: the system's.
	Roots *x509.CertPool
	// Resolver looks names up. Default: the system's.
	Resolver *net.Resolver
}

// NewClient makes a client that calls only these hosts. It uses no proxy, has no
// cookies, and opens a connection for each call. An error that it returns wraps a
// *[RefusedError] if the call was not allowed.
func NewClient(h Hosts, o Options) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: o.Resolver, Control: h.guard()}
	return &http.Client{
		Transport: &guarded{hosts: h, next: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
			TLSClientConfig:     &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: maxHeader,
		}},
		CheckRedirect: func(r *http.Request, before []*http.Request) error {
			r.Header.Del("Referer") // it may be a signed link
			if len(before) > maxRedirects {
				return &RefusedError{"the URL redirects too often"}
			}
			return nil
		},
	}
}

// guarded checks each URL that is called, that of a redirect like the first.
type guarded struct {
	hosts Hosts
	next  http.RoundTripper
}

func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.hosts.Check(r.URL); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// guard returns the check of an address to which a connection is about to be made.
func (h Hosts) guard() func(network, address string, c syscall.RawConn) error {
	return func(network, address string, c syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || h.guardian(to.Port()).Safe(network, address, c) != nil {
			return errAddress
		}
		return nil
	}
}

// guardian knows the private addresses that may be called at one port.
func (h Hosts) guardian(port uint16) *ssrf.Guardian {
	var v4, v6 []netip.Prefix
	for _, e := range h.entries {
		switch {
		case !e.network.IsValid() || e.port != strconv.Itoa(int(port)):
		case e.network.Addr().Is4():
			v4 = append(v4, e.network)
		default:
			v6 = append(v6, e.network)
		}
	}
	return ssrf.New(ssrf.WithPorts(port), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...), ssrf.WithDeniedV4Prefixes(alwaysDenied))
}
