package api

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// decision says whether a request may be answered.
type decision int

const (
	admitted decision = iota
	// refusedAsComfyUI is a refusal that ComfyUI makes too: 403 without a body.
	refusedAsComfyUI
	// refusedHere is one that only the hub makes, so it says why.
	refusedHere
	// refusedLoopback is one that ComfyUI makes too. Behind a proxy on the same machine that
	// does not pass the Host header on, every page looks foreign, so it says why.
	refusedLoopback
	// refusedHost is a request for a name that the hub does not go by.
	refusedHost
)

// refuseStrangers answers a request that a page of another site has made, and
// reports whether it did. A browser sends such requests with the user's login,
// and a hub on a private address is within its reach when it is not within the
// attacker's. Clients that are no browsers send neither Origin nor
// Sec-Fetch-Site and never notice it.
func (s *Server) refuseStrangers(w http.ResponseWriter, r *http.Request, v Visitor) bool {
	decide := judge
	if v.OperatorsSite {
		decide = judgeSite
	}
	switch decide(r, v) {
	case admitted:
		return false
	case refusedAsComfyUI:
		WriteEmpty(w, http.StatusForbidden)
	case refusedHere:
		WriteError(w, Error{
			Status: http.StatusForbidden, Kind: "foreign_origin",
			Message: "The request comes from a page of another site",
			Details: "The hub's operator can allow pages of one other site with `cors`. A proxy in front of the hub must pass the Host header on.",
		})
	case refusedLoopback:
		s.hostless.Do(func() {
			s.requests.Log().Warn("refused a page whose address is not the one that the request came for, which is this machine: if users see a 403, " +
				"a reverse proxy in front of the hub does not pass the Host header on (nginx: proxy_set_header Host $http_host)")
		})
		WriteError(w, Error{
			Status: http.StatusForbidden, Kind: "foreign_origin",
			Message: "The request comes from a page of another site than the one that it asks for",
			Details: "A reverse proxy in front of the hub must pass the Host header on (nginx: proxy_set_header Host $http_host). " +
				"Pages of one other site can be allowed with `cors`.",
		})
	case refusedHost:
		WriteError(w, Error{
			Status: http.StatusForbidden, Kind: "unknown_host",
			Message: "The hub does not answer to this host name",
			Details: "A hub on a private address answers to IP addresses, local names and the names of its site. The hub's operator can add this one with `hosts`.",
		})
	}
	return true
}

// judge decides by what browsers say of themselves. Sec-Fetch-Site is exact but
// missing over plain HTTP; Origin comes with everything that can do harm.
func judge(r *http.Request, v Visitor) decision {
	if v.StrangeHost {
		return refusedHost
	}
	origin, site, acts := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"), acts(r)
	switch {
	case v.CORS == "*", opensLink(r):
		return admitted
	case v.CORS != "" && (!acts || origin == v.CORS):
		return admitted // what others only read their browser keeps from them
	case site == "cross-site":
		return refusedAsComfyUI
	case site == "same-site" && acts:
		return refusedHere // a sibling subdomain, or another port
	case origin == "":
		return admitted
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		// "null": a sandboxed frame or a local file, which any site can make.
		if acts {
			return refusedHere
		}
		return admitted
	}
	switch {
	case ownOrigin(r, v):
		return admitted
	case loopback(hostname(cmp.Or(v.Host, r.Host))):
		return refusedLoopback
	}
	return refusedHere
}

// LinkPath is below which files lie for those who hold a signed link.
const LinkPath = "/hub/files/"

// opensLink reports whether a request is for a file by a signed link. A link is
// its own permission and changes nothing, so that pages of other sites, such as
// a chat, may lead there.
func opensLink(r *http.Request) bool {
	return IsRead(r) && strings.HasPrefix(PathOf(r).String(), LinkPath)
}

// ownOrigin reports whether a request comes from a page of the hub's own.
func ownOrigin(r *http.Request, v Visitor) bool {
	u, err := url.Parse(r.Header.Get("Origin"))
	host := cmp.Or(v.Host, r.Host)
	if err != nil || u.Host == "" {
		return false
	}
	return host == "" || samePlace(host, u) || mayMissPort(r, v) && sameHost(host, u.Host)
}

// mayMissPort reports whether ports count only where both addresses have one. A page that
// reads is kept from the answer by its browser, whatever the hub says; a browser that says
// "same-origin" has compared the ports; and proxies drop the port of Host. Otherwise the page
// of another program on the same machine, at another port, would pass for the hub's.
func mayMissPort(r *http.Request, v Visitor) bool {
	_, port := splitHost(cmp.Or(v.Host, r.Host))
	return !acts(r) || r.Header.Get("Sec-Fetch-Site") == "same-origin" || v.Forwarded && port == ""
}

// samePlace compares a Host header with an origin, both with the port that they mean: that of
// HTTP or of HTTPS where they name none. Which of the two it is a proxy may have changed.
func samePlace(host string, origin *url.URL) bool {
	name, port := splitHost(host)
	ofName, ofPort := splitHost(origin.Host)
	usual := func(port string) bool { return port == "" || port == "80" || port == "443" }
	return name == ofName && (port == ofPort || usual(port) && usual(ofPort))
}

// acts reports whether a request changes something or opens a socket, whose
// messages a page may read whatever its site is.
func acts(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return r.Header.Get("Upgrade") != ""
	case http.MethodOptions:
		return false
	}
	return true
}

// sameHost compares two addresses as ComfyUI does: a port counts only where
// both have one, because proxies drop it or put in their own.
func sameHost(a, b string) bool {
	nameA, portA := splitHost(a)
	nameB, portB := splitHost(b)
	return nameA == nameB && (portA == portB || portA == "" || portB == "")
}

// hostname is a Host header without its port.
func hostname(host string) string {
	name, _ := splitHost(host)
	return name
}

// splitHost takes a Host header apart; the port is "" where there is none.
func splitHost(host string) (name, port string) {
	host = strings.ToLower(host)
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return strings.Trim(host, "[]"), ""
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
