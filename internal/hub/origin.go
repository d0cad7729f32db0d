package hub

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// sameSite reports whether a request may be answered: a page of another site
// that a user happens to look at must not reach a hub on the user's own
// machine. It is ComfyUI's check: only for a Host that is loopback, and only
// where a browser says where the request comes from, so that scripts, servers
// and plugins never notice it.
func sameSite(r *http.Request) bool {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" || r.Host == "" || !loopback(hostname(r.Host)) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return true // "null", and what is no address
	}
	host, from := strings.ToLower(r.Host), strings.ToLower(u.Host)
	if u.Port() == "" {
		host = hostname(host)
	}
	if _, _, err := net.SplitHostPort(r.Host); err != nil {
		from = u.Hostname()
	}
	return strings.Trim(host, "[]") == strings.Trim(from, "[]") || host == from
}

// hostname is a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// loopback reports whether a host name means this machine. Unlike ComfyUI it
// asks no DNS: names other than localhost are taken as they are.
func loopback(name string) bool {
	if strings.EqualFold(name, "localhost") || strings.HasSuffix(strings.ToLower(name), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}
