package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
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
	// Transport takes the requests that are allowed, instead of the network.
	Transport http.RoundTripper
}

// Client calls hosts that may be called. It uses no proxy, has no cookies, and opens a
// connection for each call.
type Client struct{ http *http.Client }

// NewClient makes a client that calls only these hosts.
func NewClient(h Hosts, o Options) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: o.Resolver, Control: h.guard()}
	next := o.Transport
	if next == nil {
		next = &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
			TLSClientConfig:     &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: maxHeader,
		}
	}
	return &Client{&http.Client{
		Transport: &guarded{hosts: h, next: next},
		CheckRedirect: func(r *http.Request, before []*http.Request) error {
			r.Header.Del("Referer") // it may be a signed link
			if len(before) > maxRedirects {
				return &RefusedError{"the URL redirects too often"}
			}
			return nil
		},
	}}
}

// Get reads what a URL leads to, its length in bytes, -1 if that is not known. The body
// must be closed; it may be longer than was said. The error wraps a *[RefusedError] if
// the call was not allowed, and is a *[StatusError] for an answer other than 200.
func (c *Client) Get(ctx context.Context, link, accept string) (body io.ReadCloser, length int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("User-Agent", "ComfyHub")
	r.Header.Set("Accept", accept)
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, 0, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, 0, &StatusError{answer.StatusCode}
	}
	return answer.Body, answer.ContentLength, nil
}

// Post sends a body to a URL and returns the status of the answer, of which no more is
// read. Redirects are not followed. The error wraps a *[RefusedError] if the call was not
// allowed.
func (c *Client) Post(ctx context.Context, link string, header http.Header, body []byte) (status int, err error) {
	answer, err := c.Call(ctx, http.MethodPost, link, header, body)
	if err != nil {
		return 0, err
	}
	_ = answer.Body.Close()
	return answer.StatusCode, nil
}

// Call makes a request and returns the answer, whatever its status. Its body must be closed, and may
// be of any length. Redirects are not followed. The error wraps a *[RefusedError] if the call was
// not allowed.
func (c *Client) Call(ctx context.Context, method, link string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, link, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header.Clone()
	r.Header.Set("User-Agent", "ComfyHub")
	once := *c.http
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return once.Do(r)
}

// StatusError is the answer of a host that does not give what was asked for.
type StatusError struct{ Status int }

func (e *StatusError) Error() string { return "answered with status " + strconv.Itoa(e.Status) }

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
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !h.safe(to) {
			return errAddress
		}
		return nil
	}
}

// safe reports whether an address is public, or one that the list has itself.
func (h Hosts) safe(to netip.AddrPort) bool {
	network := "tcp6"
	if to.Addr().Is4() {
		network = "tcp4"
	}
	return h.guardian(to.Port()).Safe(network, to.String(), nil) == nil
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
