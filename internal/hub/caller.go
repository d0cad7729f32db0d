package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"

	"github.com/comfyhub/comfyhub/internal/job"
)

// asker is who makes a request, in the three ways the hub needs to know it.
type asker struct {
	// tenant pays for the work and owns files and history.
	tenant string
	// login says that the tenant comes from a login, so that all of the
	// tenant's jobs are the caller's own.
	login bool
	// client is the client_id that the request names, or "".
	client string
	// origin is the address and the program: all that is known of a request
	// that names no client, such as most bare interrupts.
	origin string
	// network is the address alone, and of IPv6 the network that one customer
	// has, hashed; empty where there is a login.
	network string
	live    bool
}

// askerOf reads who asks from a request. The body's client_id, where there is
// one, is added by the handler that parses the body.
func askerOf(r *http.Request, v Visitor) asker {
	a := asker{tenant: v.Tenant, login: v.Tenant != "", live: v.Live}
	if a.tenant == "" {
		a.tenant = job.DefaultTenant
	}
	a.client = r.URL.Query().Get("clientId")
	// Hashed: the key goes into Redis, and neither an address nor a
	// User-Agent of any length belongs there.
	sum := sha256.Sum256([]byte(v.IP + "\x00" + r.UserAgent()))
	a.origin = hex.EncodeToString(sum[:8])
	if !a.login {
		sum := sha256.Sum256([]byte(networkOf(v.IP)))
		a.network = hex.EncodeToString(sum[:8])
	}
	return a
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

// caller is the scope of counts, bare interrupts and clears: the tenant where
// there is a login, else the client id, else address and program. It is the
// one definition of the word; see callersOf for a request that names nobody.
func (a asker) caller() string {
	switch {
	case a.login:
		return "tenant:" + a.tenant
	case a.client != "":
		return "client:" + a.tenant + "/" + a.client
	default:
		return "from:" + a.tenant + "/" + a.origin
	}
}

// Visitor is what the web server knows of a request beyond its bytes.
type Visitor struct {
	// Tenant pays for the work; empty means the default tenant.
	Tenant string
	// IP is the client's address as the web server trusts it.
	IP string
	// Live asks for interleaved events instead of a serial stream.
	Live bool
	// CORS is the origin whose pages may call the hub, "*" for all. Empty means
	// none.
	CORS string
	// Host is what the browser asked for, where a trusted proxy says so; empty
	// means the Host header.
	Host string
	// StrangeHost says that the web server does not go by the name that was
	// asked for: a page may have had its own name resolved to this machine
	// (DNS rebinding).
	StrangeHost bool
	// Secure says that the browser speaks TLS.
	Secure bool
	// Proxied says that the request came through a proxy that the web server
	// was not told of, so that IP may be everybody's.
	Proxied bool
}
