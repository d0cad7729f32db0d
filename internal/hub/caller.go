package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

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
	live   bool
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
	return a
}

// caller is the scope of counts, bare interrupts and clears: the tenant where
// there is a login, else the client id, else address and program. It is the
// one definition of the word.
func (a asker) caller() string {
	switch {
	case a.login:
		return "tenant:" + a.tenant
	case a.client != "":
		return "client:" + a.client
	default:
		return a.from()
	}
}

// from is the caller of a request that names no client.
func (a asker) from() string {
	if a.login {
		return "tenant:" + a.tenant
	}
	return "from:" + a.origin
}

// callers are all the names under which a posted job belongs to its caller: a
// job posted with a client id must be found again by a bare interrupt that
// carries none.
func (a asker) callers() []string {
	if c := a.caller(); c != a.from() {
		return []string{c, a.from()}
	}
	return []string{a.from()}
}
