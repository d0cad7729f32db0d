package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/apikeys"
)

// KeyPolicy says whether API keys identify callers.
type KeyPolicy string

const (
	// KeysOff ignores keys.
	KeysOff KeyPolicy = ""
	// KeysOptional lets callers with a key in, and others as if there were no keys.
	KeysOptional KeyPolicy = "optional"
	// KeysRequired lets nobody in but callers with a key, and those whom the web server
	// itself has identified.
	KeysRequired KeyPolicy = "required"
)

// doorkeeper lets callers with API keys in.
type doorkeeper struct {
	// find returns what a secret gives; see [apikeys.Keys.Find].
	find func(ctx context.Context, secret string) (apikeys.Access, error)
	// audit writes to the audit log.
	audit    func(event string, attrs ...any)
	requests *Requests
}

// identified is a request whose caller is known as far as keys tell.
type identified struct {
	*http.Request
	Visitor

	// key is what the request has shown; nil without a key.
	key *apikeys.Access
	// bearer says that it has shown the key as a bearer token or in X-API-Key, which browsers
	// send only for a script that has the key.
	bearer bool
	// acts says that a program names the tenant, which it serves.
	acts bool
}

// admit finds out by which key a request comes, takes the key out of it, and answers a
// request that may not come in. A caller with a key is the key's tenant whatever else the
// web server knows of it, and no more than the key permits.
func (d *doorkeeper) admit(w http.ResponseWriter, r *http.Request, v Visitor) (in identified, ok bool) {
	in = identified{Request: r, Visitor: v}
	if v.Keys != KeysOff && in.contradicts() {
		WriteError(w, Error{
			Status: http.StatusBadRequest, Kind: "several_keys", Message: "The request shows two different keys",
			Details: "X-API-Key and Authorization must be the same key, or only one of them be sent.",
		})
		return in, false
	}
	if handled, ok := d.actFor(w, &in); handled {
		return in, ok
	}
	if v.Keys == KeysOff {
		return in, true
	}
	secret, way := shownKey(r)
	shown := way != notShown
	in.Request = withoutKey(r, shown)
	if !shown {
		if v.Keys == KeysRequired && !v.Identified {
			refuseKey(w, "no_api_key", "This hub needs an API key", "Send it as `Authorization: Bearer KEY`, or as the password of HTTP Basic authentication. The hub's operator can make one.")
			return in, false
		}
		return in, true
	}
	access, err := d.find(r.Context(), secret)
	switch {
	case err == nil:
	case errors.Is(err, apikeys.ErrMistyped), errors.Is(err, apikeys.ErrUnknown):
		d.refuse(w, v, err)
		return in, false
	default:
		d.requests.Fail(w, r, err)
		return in, false
	}
	if need := scopeOf(r); !access.May(need) {
		d.audit("key without the scope", "key", access.Name, "tenant", access.Tenant, "address", v.IP, "scope", string(need), "status", http.StatusForbidden)
		writeMissingScope(w, need)
		return in, false
	}
	in.key, in.bearer = &access, way == asBearer
	in.Tenant, in.Trusted, in.Identified = access.Tenant, false, true
	if access.May(apikeys.ActForTenants) {
		in.act()
	}
	return in, true
}

// actFor judges a request that shows the tenant secret, or names a tenant and shows a
// bearer token that is neither the secret nor a key. handled says that there is nothing more
// to find out.
func (d *doorkeeper) actFor(w http.ResponseWriter, in *identified) (handled, ok bool) {
	token, shown := bearer(in.Request)
	switch {
	case !in.TenantSecret.set || !shown || apikeys.IsSecret(token):
		return false, false
	case in.TenantSecret.Is(token):
		in.Request = withoutKey(in.Request, true)
		in.Trusted, in.Identified = false, true
		in.act()
		return true, true
	case in.Named != "":
		d.refuse(w, in.Visitor, apikeys.ErrUnknown)
		return true, false
	}
	return false, false
}

// act has the request belong to the tenant that it names, if it names one. Whoever acts for
// others is no operator because of whom it names.
func (in *identified) act() {
	if in.Named != "" {
		in.Tenant, in.acts = in.Named, true
	}
}

// refuse answers a request with a key that is not valid. A valid key is accepted however
// many others have failed at its address: a key cannot be guessed, and a colleague behind
// the same router must not be able to lock anybody out.
func (d *doorkeeper) refuse(w http.ResponseWriter, v Visitor, err error) {
	if wait := d.requests.Attempts.Failed(v.IP); wait > 0 {
		w.Header().Set("Connection", "close")
		WriteError(w, Error{
			Status: http.StatusTooManyRequests, Kind: "too_many_attempts", Message: "Too many wrong API keys came from your address",
			Details: "Valid keys are still accepted.", RetryAfter: wait,
		})
		return
	}
	d.audit("wrong key", "address", v.IP, "status", http.StatusUnauthorized)
	details := "It was revoked or has expired, or there never was one like it. The hub's operator can make a new one."
	if errors.Is(err, apikeys.ErrMistyped) {
		details = "It is not complete, or mistyped."
	}
	refuseKey(w, "invalid_api_key", "The API key is not valid", details)
}

// refuseKey answers 401. A browser that is told of Basic authentication asks its user for
// the key, as the password.
func refuseKey(w http.ResponseWriter, kind, message, details string) {
	challenge := `Bearer realm="ComfyHub"`
	if kind == "invalid_api_key" {
		challenge += `, error="invalid_token"`
	}
	w.Header()["Www-Authenticate"] = []string{challenge, `Basic realm="ComfyHub", charset="UTF-8"`}
	w.Header().Set("Cache-Control", "no-store")
	WriteError(w, Error{Status: http.StatusUnauthorized, Kind: kind, Message: message, Details: details})
}

// scopeOf is what a request needs.
func scopeOf(r *http.Request) apikeys.Scope {
	if IsRead(r) {
		return apikeys.Read
	}
	return apikeys.Submit
}

// shownWay is how a request shows a key.
type shownWay int

const (
	notShown shownWay = iota
	asBearer          // also in X-API-Key
	// asPassword is a login that browsers keep and send by themselves.
	asPassword
	asParameter
)

// keyHeader shows an API key as a bearer token does: clients of other services send it. Neither
// a tenant secret nor a machine's token counts in it.
const keyHeader = "X-Api-Key"

// shownKey is the key that a request shows: as a bearer token, in X-API-Key, as the password of
// Basic authentication, or for reads and WebSockets, whose clients may be unable to set a
// header, as the parameter token. What does not look like a key is somebody else's.
func shownKey(r *http.Request) (secret string, way shownWay) {
	if token, found := bearer(r); found && apikeys.IsSecret(token) {
		return token, asBearer
	}
	if keys := keysInHeader(r); len(keys) > 0 {
		return keys[0], asBearer
	}
	if _, password, ok := r.BasicAuth(); ok && apikeys.IsSecret(password) {
		return password, asPassword
	}
	if token := QueryOf(r).Get(tokenParameter); IsRead(r) && apikeys.IsSecret(token) {
		return token, asParameter
	}
	return "", notShown
}

// contradicts reports whether a request shows two different secrets of the hub in its headers.
// RFC 6750 forbids to show a token in more than one way: which of them counts is a guess, and
// the tenant would depend on it.
func (in *identified) contradicts() bool {
	keys := keysInHeader(in.Request)
	if len(keys) == 0 {
		return false
	}
	token, _ := bearer(in.Request)
	_, password, _ := in.BasicAuth()
	for _, other := range append(keys[1:], token, password) {
		if other != keys[0] && (apikeys.IsSecret(other) || in.TenantSecret.Is(other)) {
			return true
		}
	}
	return false
}

// keysInHeader are what looks like a key in X-API-Key.
func keysInHeader(r *http.Request) []string {
	return slices.DeleteFunc(slices.Clone(r.Header.Values(keyHeader)), func(key string) bool { return !apikeys.IsSecret(key) })
}

// bearer is the token that a request shows in the header meant for it.
func bearer(r *http.Request) (token string, shown bool) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), found && strings.EqualFold(scheme, "Bearer")
}

// ShowsKey reports whether a request shows a key where web servers write it to their logs: in
// X-API-Key, or in the query.
func ShowsKey(r *http.Request) bool {
	return len(keysInHeader(r)) > 0 || showsToken(r)
}

// showsToken reports whether the query of a request contains a key, in whatever parameter.
func showsToken(r *http.Request) bool {
	for _, values := range QueryOf(r) {
		if slices.ContainsFunc(values, apikeys.IsSecret) {
			return true
		}
	}
	return false
}

// withoutKey is a request that shows no key any more; shown says that [shownKey] has found
// one. Logins that are not the hub's stay: only headers that are allowed go on to an instance.
func withoutKey(r *http.Request, shown bool) *http.Request {
	out := r
	if shown {
		header := r.Header.Clone()
		header.Del("Authorization")
		header.Del(keyHeader)
		out = withoutToken(r)
		out.Header = header
	}
	if showsToken(out) { // of a method that cannot use it, say
		return withoutToken(out)
	}
	return out
}

// restrict makes a requester what the request has shown, and ends the request once its key
// is not valid any more. done must be called.
func (in identified) restrict(a *Requester) (r *http.Request, done func()) {
	a.acts = in.acts
	a.Operator = a.Operator && !in.acts
	if in.key == nil {
		return in.Request, func() {}
	}
	a.Key, a.Until, a.ReadOnly = in.key.Name, in.key.Until, !in.key.May(apikeys.Submit)
	a.Operator = in.key.May(apikeys.Admin) && !in.acts
	ctx, cancel := context.WithCancel(in.Context())
	stop := in.key.Until(cancel)
	return in.WithContext(ctx), func() {
		stop()
		cancel()
	}
}
