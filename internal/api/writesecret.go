package api

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// WriteSecret answers with a secret of the requester's tenant. It is how every route does:
// a secret lets its holder act, so that a key that permits only what changes nothing does not
// get it, although the request is a read.
func WriteSecret(w http.ResponseWriter, a Requester, name, secret string) {
	w.Header().Set("Cache-Control", "no-store")
	if a.ReadOnly {
		writeMissingScope(w, apikeys.Submit)
		return
	}
	WriteDetail(w, pyjson.NewObject(pyjson.Member{Key: name, Value: pyjson.String(secret)}))
}

// writeMissingScope answers a request whose key would need a scope.
func writeMissingScope(w http.ResponseWriter, need apikeys.Scope) {
	WriteError(w, Error{
		Status: http.StatusForbidden, Kind: "missing_scope", Message: "Your API key does not permit this",
		Details: "It would need the scope " + string(need) + ".",
	})
}
