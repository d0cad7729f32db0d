package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// asker is who makes a request, in the ways the hub needs to know it.
type asker struct {
	// tenant pays for the work and owns files and history.
	tenant string
	// login says that the tenant comes from a login, so that all of the
	// tenant's jobs are the caller's own.
	login bool
	// trusted says that the caller may speak for every tenant.
	trusted bool
	// client is the client_id that the request names, or "".
	client string
	// browser is the browser by its cookie, or "".
	browser string
	// fresh says that the cookie goes out with the answer, to a browser that may
	// not keep it.
	fresh bool
	// address is the address and the program, or "" where everybody has the
	// same address: all that is known of many a script.
	address string
	// network is the address alone, and of IPv6 the network that one customer
	// has, hashed; empty where there is a login.
	network string
	// page says that a page in a browser makes the request.
	page bool
	live bool
	// one says that listings show one running job only, as one ComfyUI does.
	one bool
}

// askerOf reads who asks from a request. The body's client_id, where there is
// one, is added by the handler that parses the body.
func askerOf(r *http.Request, v Visitor) asker {
	a := asker{tenant: tenantOf(v.Tenant), login: v.Tenant != "", trusted: v.Trusted, live: v.Live, one: v.QueueOne}
	a.client = queryOf(r).Get("clientId")
	// Hashed: the keys go into Redis, and neither an address nor a User-Agent of
	// any length belongs there, nor a cookie that others must not know.
	if cookie := browserCookie(r); cookie != "" {
		a.browser = shortHash(cookie)
	}
	// Browsers send Origin with every POST, also over plain HTTP.
	a.page = a.browser != "" || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	if !v.Proxied {
		a.address = shortHash(v.IP + "\x00" + r.UserAgent())
	}
	if !a.login {
		a.network = shortHash(networkOf(v.IP))
	}
	return a
}

// share is who a request counts for where senders share memory: a login, else
// a network.
func (a asker) share() string {
	if a.login {
		return "tenant:" + a.tenant
	}
	return "from:" + a.network
}

// networkOf is what an address shares with those that one person can choose.
func networkOf(ip string) string {
	address, err := netip.ParseAddr(ip)
	if err != nil || address.Unmap().Is4() {
		return ip
	}
	prefix, err := address.WithZone("").Prefix(64)
	if err != nil {
		return ip
	}
	return prefix.String()
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// tenantOf is the tenant of a login. That of a login that is called like the
// tenant of those who have none, or like such a replacement, has a prefix.
func tenantOf(login string) string {
	const prefix = "login:"
	switch {
	case login == "":
		return job.DefaultTenant
	case login == job.DefaultTenant, strings.HasPrefix(login, prefix):
		return prefix + login
	}
	return login
}

// names takes the client_id of a request's body, which counts before that of
// its query.
func (a *asker) names(client string) {
	if client != "" && len(client) <= maxName {
		a.client = client
	}
}

// caller is the scope of counts, bare interrupts and clears: the tenant where
// there is a login, else the client id, else the browser, else address and
// program. It is the one definition of the word; see callersOf for a request
// that names no client.
func (a asker) caller() string {
	switch {
	case a.login:
		return "tenant:" + a.tenant
	case a.client != "":
		return "client:" + a.tenant + "/" + a.client
	case a.browser != "":
		return "browser:" + a.tenant + "/" + a.browser
	default:
		return "from:" + a.tenant + "/" + a.address
	}
}

// place is what tells a request from those of others when it names no client,
// "" for nothing.
func (a asker) place() string {
	if a.browser != "" {
		return "browser:" + a.browser
	}
	return a.addressPlace()
}

func (a asker) addressPlace() string {
	if a.address == "" {
		return ""
	}
	return "from:" + a.address
}

// nobody reports whether nothing tells the asker from everybody else.
func (a asker) nobody() bool { return !a.login && a.client == "" && a.place() == "" }

// turn is who takes turns with others for work that the hub does itself. Unlike
// caller it cannot be chosen: names of clients and programs cost nothing.
func (a asker) turn() string { return a.tenant + "/" + a.network }
