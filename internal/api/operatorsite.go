package api

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// An operator's browser shows its login at the site of ComfyUI's web UI with every request,
// whoever's script makes it: the page runs those of all custom nodes, and what a script there
// is to know another one reads. So whoever an operator is in a browser is one for reading at
// that site, and for changes only at a site of the operators' own, which has nothing but the
// hub's dashboard and its calls, or with a key that the browser does not send by itself.

// fromPage reports whether a page in a browser may have made a request. Scripts can neither
// set nor remove these headers. Browsers send Origin with whatever is no reading request, and
// Sec-Fetch-Site over TLS and on loopback; the others count because a proxy may drop those,
// and because a cookie is a login that a browser sends by itself. Sec-Fetch-Mode does not
// count: browsers send it with Sec-Fetch-Site, and fetch of Node sends it alone.
func fromPage(r *http.Request) bool {
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Sec-Fetch-Dest", "Referer", "Cookie"} {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return false
}

// demote takes the power of an operator from a request that changes something, unless the
// operator has plainly made it: see above.
func (a *Requester) demote(in identified, c choice) {
	a.OperatorsSite = in.OperatorsSite
	if a.Operator && !in.OperatorsSite && !in.bearer && !c.reads && fromPage(in.Request) {
		a.Operator, a.Elsewhere = false, true
	}
}

// siteChoice finds who answers a request at the operators' site. Routes that let callers in by
// themselves are for others, and show what users and machines made.
func (s *Server) siteChoice(r *http.Request, v Visitor, path aiohttp.Path) choice {
	f, values, allowed := s.rooms.Own.find(r.Method, path)
	switch {
	case f.Handler != nil && !f.open:
		if !f.asset {
			f.Handler = operatorsOnly(f.Handler, v)
		}
		return choice{answer: s.answerer(f, path, values), reads: f.reads || IsRead(r)}
	case f.Handler == nil && allowed != nil:
		return choice{answer: notAllowed(allowHeader(allowed))}
	case path.String() == "/" && IsRead(r):
		return choice{open: true, answer: func(w http.ResponseWriter, _ *http.Request, _ Requester) {
			w.Header().Set("Location", "hub/") // also where a proxy serves the site below a path
			WriteEmpty(w, http.StatusPermanentRedirect)
		}}
	}
	return choice{open: true, answer: func(w http.ResponseWriter, _ *http.Request, _ Requester) {
		WriteError(w, Error{
			Status: http.StatusNotFound, Kind: "operators_site", Message: "This is the operators' site, which has only the dashboard at /hub/ and its calls",
			Details: "ComfyUI's page and API, files and results are at the hub's other site, the one of the directive `comfyhub`.",
		})
	}}
}

// operatorsOnly refuses everybody else: a site without a login must not let in those whom the
// hub's other site would have asked for one.
func operatorsOnly(h Handler, v Visitor) Handler {
	return func(w http.ResponseWriter, r *http.Request, a Requester, path []string) {
		switch {
		case a.Operator:
			h(w, r, a, path)
		case v.Keys != KeysOff && a.Key == "" && !v.Identified:
			refuseKey(w, "no_api_key", "The operators' site needs a login or an API key", "Send a key with the scope admin as `Authorization: Bearer KEY`, or as the password of HTTP Basic authentication.")
		default:
			WriteError(w, Error{
				Status: http.StatusForbidden, Kind: "no_operator", Message: "Only operators may use this site",
				Details: "The Caddyfile names them with `operators`; an API key needs the scope admin.",
			})
		}
	}
}

// judgeSite decides about a request at the operators' site, where neither `cors` nor a page on
// another port of the same host may do anything but lead there.
func judgeSite(r *http.Request, v Visitor) decision {
	if v.StrangeHost {
		return refusedHost
	}
	switch site := strings.Join(r.Header.Values("Sec-Fetch-Site"), ", "); site {
	case "same-origin": // the browser knows best: a proxy may have changed Host
		return admitted
	case "", "none":
	default:
		if !opensPage(r) {
			return refusedHere
		}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !sameOrigin(origin, cmp.Or(v.Host, r.Host), v.Secure) {
			return refusedHere
		}
	}
	return admitted
}

// opensPage reports whether a request opens an address in a tab, as a link does.
func opensPage(r *http.Request) bool {
	return IsRead(r) && r.Header.Get("Upgrade") == "" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// sameOrigin compares an origin with the host of a request to the letter: another port is
// another site, and so is http where the hub itself speaks TLS. Behind a proxy that it does
// not know the hub cannot tell which of the two the browser has asked for.
func sameOrigin(origin, host string, secure bool) bool {
	u, err := url.Parse(origin)
	if err != nil || host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) || secure && u.Scheme != "https" {
		return false
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return withPort(u.Host, port) == withPort(host, port)
}

// withPort is a host in lower case with its port.
func withPort(host, port string) string {
	name, given := splitHost(host)
	return net.JoinHostPort(strings.TrimSuffix(name, "."), cmp.Or(given, port))
}

// isolate keeps pages of other sites from framing what the operators' site answers, loading
// it, and holding on to a window with it.
func isolate(header http.Header) {
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}
