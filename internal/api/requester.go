package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/comfyhub/comfyhub/internal/job"
)

// NoLogin is the tenant of everybody who has not logged in.
const NoLogin = job.DefaultTenant

// Requester is who makes a request, in the ways the hub needs to know it.
type Requester struct {
	// Tenant pays for the work and owns files and history.
	Tenant string
	// Login says that the tenant comes from a login, so that all of the
	// tenant's jobs are the caller's own.
	Login bool
	// Trusted says that the caller may speak for every tenant.
	Trusted bool
	// Operator says that the caller runs the hub: it sees everything and may use an
	// operator's commands. It is the one definition of the word: the tenant is one of the
	// hub's operators, or the web server says so of the request.
	Operator bool
	// Elsewhere says that the caller is an operator in a browser that is not at a site for
	// operators, and so is none for this request, which changes something.
	Elsewhere bool
	// OperatorsSite says that the request came in at a site for operators.
	OperatorsSite bool
	// Key is the name of the API key that the request has shown, or "".
	Key string
	// ReadOnly says that the key permits only what changes nothing.
	ReadOnly bool
	// acts says that a program has named the tenant, for whom it asks.
	acts bool
	// ip is the caller's address, for the audit log.
	ip string
	// Until calls a function once the caller may not be here any more, because the key was
	// revoked or has expired; nil for callers without a key.
	Until func(do func()) (stop func() bool)
	// Client is the client_id that the request names, or "".
	Client string
	// browser is the browser by its cookie, or "".
	browser string
	// fresh says that the cookie goes out with the answer, to a browser that may
	// not keep it.
	fresh bool
	// address is the address and the program, or "" where everybody has the
	// same address: all that is known of many a script.
	address string
	// Network is the address alone, and of IPv6 the network that one customer
	// has, hashed; empty where there is a login.
	Network string
	// Base is the address under which the requester knows the hub, such as
	// "https://hub.example.com", with the prefix; without scheme and host if the request names
	// no host.
	Base string
	// Prefix begins the paths of URLs that name no host; see [Visitor].
	Prefix string
	// Page says that a page in a browser makes the request.
	Page bool
	// Live asks for interleaved events instead of a serial stream.
	Live bool
	// QueueOne says that listings show one running job only, as one ComfyUI does.
	QueueOne bool
}

// RequesterOf reads who asks from a request. The body's client_id, where there is
// one, is added by the handler that parses the body.
func RequesterOf(r *http.Request, v Visitor) Requester {
	a := Requester{Tenant: tenantOf(v.Tenant), Login: v.Tenant != "", Trusted: v.Trusted, Operator: v.Operator, Live: v.Live, QueueOne: v.QueueOne, ip: v.IP}
	a.Base, a.Prefix = baseOf(r, v), v.Prefix
	a.Client = QueryOf(r).Get("clientId")
	// Hashed: the keys go into Redis, and neither an address nor a User-Agent of
	// any length belongs there, nor a cookie that others must not know.
	if cookie := browserCookie(r); cookie != "" {
		a.browser = shortHash(cookie)
	}
	// Browsers send Origin with every POST, also over plain HTTP.
	a.Page = a.browser != "" || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	if !v.Proxied {
		a.address = shortHash(v.IP + "\x00" + r.UserAgent())
	}
	if !a.Login {
		a.Network = shortHash(networkOf(v.IP))
	}
	return a
}

// baseOf is the address of the hub as the caller of a request wrote it.
func baseOf(r *http.Request, v Visitor) string {
	at := url.URL{Scheme: "http", Host: cmp.Or(v.Host, r.Host)}
	if v.Secure {
		at.Scheme = "https"
	}
	if at.Host == "" {
		return v.Prefix
	}
	return at.String() + v.Prefix
}

// Share is who a request counts for where senders share memory: a login, else
// a network.
func (a Requester) Share() string {
	if a.Login {
		return "tenant:" + a.Tenant
	}
	return "from:" + a.Network
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
		return NoLogin
	case login == NoLogin, strings.HasPrefix(login, prefix):
		return prefix + login
	}
	return login
}

// SetClient takes the client_id of a request's body, which counts before that of
// its query.
func (a *Requester) SetClient(client string) {
	if client != "" && len(client) <= MaxName {
		a.Client = client
	}
}

// Caller is the scope of counts, bare interrupts and clears: the tenant where
// there is a login, else the client id, else the browser, else address and
// program. It is the one definition of the word; see [RecentClients.Owner] for a request
// that names no client.
func (a Requester) Caller() string {
	switch {
	case a.Login:
		return "tenant:" + a.Tenant
	case a.Client != "":
		return "client:" + a.Tenant + "/" + a.Client
	case a.browser != "":
		return "browser:" + a.Tenant + "/" + a.browser
	default:
		return "from:" + a.Tenant + "/" + a.address
	}
}

// Requester returns the requester as jobs and sockets know it.
func (a Requester) Requester() job.Requester {
	return job.Requester{Tenant: a.Tenant, Caller: a.Caller(), Client: a.Client}
}

// Viewer returns the requester as the core judges what it may see.
func (a Requester) Viewer() job.Viewer {
	return job.Viewer{Tenant: a.Tenant, Login: a.Login, Trusted: a.Trusted, Operator: a.Operator}
}

// place is what tells a request from those of others when it names no client,
// "" for nothing.
func (a Requester) place() string {
	if a.browser != "" {
		return "browser:" + a.browser
	}
	return a.addressPlace()
}

// Origin is the place that a job keeps, so that requests from there find it. A page without
// the cookie has none: the browser may get one at any moment, and others of its address
// must not be taken for it.
func (a Requester) Origin() string {
	if a.Login || a.Page && a.browser == "" {
		return ""
	}
	return a.place()
}

func (a Requester) addressPlace() string {
	if a.address == "" {
		return ""
	}
	return "from:" + a.address
}

// MayManage reports whether the caller may change the servers where the operator has allowed it
// (`manager on`): everybody but API keys that are no operator's. ComfyUI-Manager is a part of
// ComfyUI's page, so an operator may do so there.
func (a Requester) MayManage() bool { return a.Key == "" || a.Operator || a.Elsewhere }

// Anonymous reports whether nothing tells the requester from everybody else.
func (a Requester) Anonymous() bool { return !a.Login && a.Client == "" && a.place() == "" }

// Turn is who takes turns with others for work that the hub does itself. Unlike
// caller it cannot be chosen: names of clients and programs cost nothing.
func (a Requester) Turn() string { return a.Tenant + "/" + a.Network }
