package egress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// names is a DNS server. Each question for a name takes the next of its addresses; the
// last one stays.
type names struct {
	mu      sync.Mutex
	of      map[string][]string
	answers int
}

func (n *names) next(name string, typ dnsmessage.Type) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.of[strings.TrimSuffix(name, ".")]
	if len(list) == 0 {
		return netip.Addr{}, false
	}
	ip := netip.MustParseAddr(list[0])
	if ip.Is4() != (typ == dnsmessage.TypeA) {
		return netip.Addr{}, false
	}
	if n.answers++; len(list) > 1 {
		n.of[strings.TrimSuffix(name, ".")] = list[1:]
	}
	return ip, true
}

func (n *names) answered() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answers
}

// resolver asks the server, and nobody else.
func (n *names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			size, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:size]) != nil || len(m.Questions) == 0 {
				continue
			}
			q := m.Questions[0]
			m.Header.Response, m.Header.Authoritative, m.Additionals = true, true, nil
			if ip, ok := n.next(q.Name.String(), q.Type); ok {
				header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
				if ip.Is4() {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: ip.As4()}})
				} else {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// server is an https server on loopback whose certificate is for example.com.
func server(t *testing.T, handler http.HandlerFunc) (port string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	u := must.Get(url.Parse(s.URL))(t)
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return u.Port(), roots
}

func get(t *testing.T, c *egress.Client, link string) (string, error) {
	t.Helper()
	body, length, err := c.Get(t.Context(), link, "image/*")
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	require.EqualValues(t, len(text), length)
	return string(text), err
}

func TestClientCallsWhatIsAllowed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // is not used
	var asked http.Header
	port, roots := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/here", http.StatusFound)
			return
		}
		asked = r.Header
		_, _ = io.WriteString(w, "hello")
	})
	dns := &names{of: map[string][]string{"example.com": {"127.0.0.1"}}}
	c := egress.NewClient(hosts(t, "example.com:"+port, "127.0.0.1:"+port), egress.Options{Roots: roots, Resolver: dns.resolver(t)})
	for _, link := range []string{"https://example.com:" + port + "/here", "https://127.0.0.1:" + port, "https://example.com:" + port + "/moved?signature=1"} {
		require.Equal(t, "hello", must.Get(get(t, c, link))(t))
		require.Empty(t, asked.Get("Referer"))
		require.Empty(t, asked.Get("Accept-Encoding"), "an answer does not grow when it is read")
	}
	_, err := get(t, egress.NewClient(hosts(t, "127.0.0.1:"+port), egress.Options{}), "https://127.0.0.1:"+port)
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, err, &unknown)
}

// No connection is made, wherever a name, an address or a redirect leads.
func TestClientRefuses(t *testing.T) {
	t.Parallel()
	port, roots := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
	})
	secretPort, secretRoots := server(t, func(http.ResponseWriter, *http.Request) { t.Error("the secret server was called") })
	_ = secretRoots
	dns := &names{of: map[string][]string{"example.com": {"127.0.0.1"}, "unlisted.example": {"127.0.0.1"}, "rebound.example": {"127.0.0.1"}}}
	for name, ip := range private {
		dns.of[name+".private.example"] = []string{ip}
	}
	h := hosts(t, "example.com:"+port, "127.0.0.1:"+port, "*.private.example:"+port, "rebound.example:"+secretPort, "*."+"private.example:"+secretPort)
	c := egress.NewClient(h, egress.Options{Roots: roots, Resolver: dns.resolver(t)})
	through := func(to string) string { return "https://example.com:" + port + "/?to=" + url.QueryEscape(to) }
	links := map[string]string{
		"an address":                  "https://127.0.0.1:" + secretPort,
		"a host that is not listed":   "https://unlisted.example:" + port,
		"a name at another port":      "https://rebound.example:" + secretPort,
		"a redirect to an address":    through("https://127.0.0.1:" + secretPort),
		"a redirect to another host":  through("https://unlisted.example:" + port),
		"a redirect to a name":        through("https://rebound.example:" + secretPort),
		"a redirect to plain HTTP":    through("http://example.com:" + port),
		"a redirect to a file":        through("file:///etc/passwd"),
		"a redirect with a user name": through("https://a@example.com:" + port),
		"an endless redirect":         through(through(through(through(through("/"))))),
	}
	for name := range private {
		if private[name] != "127.0.0.1" && name != "mapped" { // listed, at that port
			links[name] = "https://" + name + ".private.example:" + port
		}
		links[name+" at another port"] = "https://" + name + ".private.example:" + secretPort
	}
	for name, link := range links {
		_, err := get(t, c, link)
		var refused *egress.RefusedError
		require.ErrorAs(t, err, &refused, "%s: %v", name, err)
		require.NotContains(t, refused.Error(), "127.0.0.1")
	}
	require.NotZero(t, dns.answered())
}

// private are addresses that DNS may answer with and that nobody may call.
var private = map[string]string{
	"loopback": "127.0.0.1", "loopback-far": "127.255.255.254", "this-network": "0.0.0.0", "ten": "10.1.2.3", "seventeen": "172.16.5.4",
	"nineteen": "192.168.1.1", "metadata": "169.254.169.254", "carrier": "100.100.100.200", "azure": "168.63.129.16", "multicast": "224.0.0.1",
	"broadcast": "255.255.255.255", "six-loopback": "::1", "six-any": "::", "mapped": "::ffff:127.0.0.1", "mapped-ten": "::ffff:10.1.2.3",
	"compatible": "::127.0.0.1", "unique": "fd00:ec2::254", "link": "fe80::1", "six-multicast": "ff02::1", "site": "fec0::1",
	"translated": "64:ff9b::7f00:1", "translated-locally": "64:ff9b:1::7f00:1", "six-to-four": "2002:7f00:1::", "teredo": "2001:0:1::1",
	"documentation": "2001:db8::1",
}

// A name that first leads to a public address and then to a private one: what counts
// is the address of the connection.
func TestClientRebinding(t *testing.T) {
	t.Parallel()
	dns := &names{of: map[string][]string{"rebound.example": {"127.0.0.1", "10.0.0.1", "169.254.169.254"}}}
	c := egress.NewClient(hosts(t, "*"), egress.Options{Resolver: dns.resolver(t)})
	for range 3 {
		_, err := get(t, c, "https://rebound.example/")
		require.ErrorAs(t, err, new(*egress.RefusedError))
	}
	require.GreaterOrEqual(t, dns.answered(), 3, "each call asks again")

	// Nor does an open connection serve a name that leads elsewhere now.
	served := 0
	port, roots := server(t, func(http.ResponseWriter, *http.Request) { served++ })
	dns = &names{of: map[string][]string{"example.com": {"127.0.0.1", "127.0.0.2"}}}
	c = egress.NewClient(hosts(t, "example.com:"+port, "127.0.0.1:"+port), egress.Options{Roots: roots, Resolver: dns.resolver(t)})
	must.Get(get(t, c, "https://example.com:"+port))(t)
	_, err := get(t, c, "https://example.com:"+port)
	require.ErrorAs(t, err, new(*egress.RefusedError))
	require.Equal(t, 1, served)
}

// A call ends with its context.
func TestClientEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	port, roots := server(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	body, _, err := egress.NewClient(hosts(t, "127.0.0.1:"+port), egress.Options{Roots: roots}).Get(ctx, "https://127.0.0.1:"+port, "image/*")
	if err == nil {
		_ = body.Close()
	}
	require.ErrorIs(t, err, context.Canceled)
}

func TestClientStatus(t *testing.T) {
	t.Parallel()
	port, roots := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	_, err := get(t, egress.NewClient(hosts(t, "127.0.0.1:"+port), egress.Options{Roots: roots}), "https://127.0.0.1:"+port)
	var status *egress.StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, http.StatusTeapot, status.Status)
}

func hosts(tb testing.TB, items ...string) egress.Hosts {
	tb.Helper()
	return must.Get(egress.ParseHosts(items))(tb)
}

func TestParseHosts(t *testing.T) {
	t.Parallel()
	for _, item := range []string{
		"example.com", "EXAMPLE.com.", "*.example.com", "example.com:8443", "bücher.example", "*", "*:8443", "10.0.0.0/8", "10.1.2.3",
		"10.1.2.3:9000", "fd00::/8", "fd00::5", "[fd00::5]:9000", "::ffff:10.0.0.1",
	} {
		h, err := egress.ParseHosts([]string{item})
		require.NoError(t, err, item)
		require.False(t, h.Empty(), item)
	}
	for _, item := range []string{
		"", "https://example.com", "example.com/a", "user@example.com", "*.", ".", "*.*.example.com", "a.*.com", "ex ample.com", "a..b", "-a.com",
		"example.com:", "example.com:0", "example.com:65536", "example.com:+1", "example.com:080", "example.com:https", "10.0.0.1/8", "10.0.0.0/33",
		"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "1.2.3.4.5", "[fd00::5", "fd00::5]:1", "*example.com", "a_b.com:1:2",
	} {
		_, err := egress.ParseHosts([]string{"fine.example", item})
		require.Error(t, err, item)
		require.Contains(t, err.Error(), item)
	}
	require.True(t, hosts(t).Empty())
}

func TestCheck(t *testing.T) {
	t.Parallel()
	listed := []string{"example.com", "*.cdn.example", "bücher.example", "minio.internal:9000", "10.0.0.0/8", "192.168.1.5:9000", "fd00::/8"}
	for link, allowed := range map[string]bool{
		"https://example.com/a.png?b#c":      true,
		"https://EXAMPLE.COM./a":             true,
		"https://example.com:443/":           true,
		"https://ｅｘａｍｐｌｅ.com/":               true, // full-width letters are the same name
		"https://a.cdn.example/":             true,
		"https://a.b.cdn.example/":           true,
		"https://bücher.example/":            true,
		"https://xn--bcher-kva.example/":     true,
		"https://minio.internal:9000/":       true,
		"https://10.1.2.3/":                  true,
		"https://[::ffff:10.1.2.3]/":         true,
		"https://192.168.1.5:9000/":          true,
		"https://[fd00::1]/":                 true,
		"http://example.com/":                false,
		"HTTP://example.com/":                false,
		"ftp://example.com/":                 false,
		"file:///etc/passwd":                 false,
		"https:example.com":                  false,
		"https:///a":                         false,
		"//example.com/a":                    false,
		"https://example.com:8443/":          false,
		"https://example.com:080/":           false,
		"https://cdn.example/":               false,
		"https://evilcdn.example/":           false,
		"https://a.cdn.example.evil/":        false,
		"https://example.com@evil.example/":  false,
		"https://evil.example@example.com/":  false,
		"https://example.com.evil.example/":  false,
		"https://evil.example/#example.com":  false,
		"https://evil.example/?@example.com": false,
		"https://minio.internal/":            false,
		"https://192.168.1.5/":               false,
		"https://11.1.2.3/":                  false,
		"https://[::ffff:127.0.0.1]/":        false,
		"https://[fe80::1%25eth0]/":          false,
		"https://[fd00::1%25eth0]/":          false,
		"https://[64:ff9b::10.1.2.3]/":       false,
		"https://[2002:a01:203::]/":          false,
		"https://167838211/":                 false, // 10.1.2.3 in decimal
		"https://0xa010203/":                 false,
		"https://012.1.2.3/":                 false,
		"https://10.1.515/":                  false,
		"https://10.1.2.3./":                 false,
		"https://localhost/":                 false,
		"https://exa%6dple.com/":             false,
		"https://example.com%00.evil/":       false,
		"https://./":                         false,
	} {
		u, err := url.Parse(link)
		if err != nil {
			require.False(t, allowed, link)
			continue
		}
		err = hosts(t, listed...).Check(u)
		if allowed {
			require.NoError(t, err, link)
			continue
		}
		var refused *egress.RefusedError
		require.ErrorAs(t, err, &refused, link)
		require.Error(t, hosts(t).Check(u), link)
	}
}

// Every public host may be called, and no private one. Addresses that are written as
// names are not names.
func TestCheckOfAll(t *testing.T) {
	t.Parallel()
	for link, allowed := range map[string]bool{
		"https://anything.example/": true, "https://8.8.8.8/": true, "https://anything.example:8443/": false, "https://2130706433/": false, "https://127.1/": false,
	} {
		u := must.Get(url.Parse(link))(t)
		if err := hosts(t, "*").Check(u); allowed {
			require.NoError(t, err, link)
		} else {
			require.Error(t, err, link)
		}
	}
}

// Where all public hosts may be called, a private address is refused as soon as it is read.
// One that the list has itself may be called.
func TestCheckOfPrivateAddresses(t *testing.T) {
	t.Parallel()
	check := func(h egress.Hosts, ip string) error {
		return h.Check(&url.URL{Scheme: "https", Host: net.JoinHostPort(ip, "443")})
	}
	for name, ip := range private {
		var refused *egress.RefusedError
		require.ErrorAs(t, check(hosts(t, "*"), ip), &refused, name)
		require.Equal(t, "the host has an address that the hub may not call", refused.Reason, name)
	}
	for _, ip := range []string{"8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"} {
		require.NoError(t, check(hosts(t, "*"), ip), ip)
	}
	for _, ip := range []string{"10.1.2.3", "::ffff:10.1.2.3", "fd00::5"} {
		require.NoError(t, check(hosts(t, "*", "10.0.0.0/8", "fd00::5"), ip), ip)
	}
}

// Nothing that a list does not name is allowed, however it is written.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"https://example.com/", "https://example.com.:443", "https://a@b.example.com", "https://[::1]/", "https://127.1", "https://exa%6dple.com/"} {
		f.Add(seed)
	}
	h := hosts(f, "example.com")
	f.Fuzz(func(t *testing.T, link string) {
		u, err := url.Parse(link)
		if err != nil || h.Check(u) != nil {
			return
		}
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.Contains(t, []string{"", "443"}, u.Port())
	})
}

// A list that is accepted never allows what every list refuses.
func FuzzParseHosts(f *testing.F) {
	for _, seed := range []string{"example.com", "*.example.com:8443", "10.0.0.0/8", "[fd00::5]:9000", "*", "127.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, item string) {
		h, err := egress.ParseHosts([]string{item})
		if err != nil {
			return
		}
		for _, link := range []string{"http://example.com/", "https://a@example.com/", "https:///", "https://[::1%25lo]/"} {
			require.Error(t, h.Check(must.Get(url.Parse(link))(t)))
		}
	})
}
