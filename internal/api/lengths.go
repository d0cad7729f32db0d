package api

import (
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

const (
	// MaxTarget is the longest path and query, in bytes: aiohttp's own bound,
	// so that no client of ComfyUI sends more. It bounds all names that come in
	// a path or a query.
	MaxTarget = 8190
	// MaxName bounds what a client calls itself, its prompts and its pictures,
	// in bytes. Such names are kept, in maps and as keys, for as long as what
	// they name; those of known clients are UUIDs and a prefix.
	MaxName = catalog.MaxID
)

// refuseLong answers requests that name something at too great a length, and
// reports whether it did.
func refuseLong(w http.ResponseWriter, r *http.Request, v Visitor, a Requester) bool {
	switch {
	case len(r.RequestURI) > MaxTarget:
		w.Header().Set("Connection", "close")
		WriteText(w, http.StatusBadRequest, "Got more than "+strconv.Itoa(MaxTarget)+" bytes when reading the request line")
	case len(a.Client) > MaxName:
		WriteJSON(w, http.StatusBadRequest, PromptError("invalid_client_id", "clientId is too long",
			"It may have "+strconv.Itoa(MaxName)+" bytes."))
	case len(v.Tenant) > MaxName:
		WriteError(w, Error{
			Status: http.StatusBadRequest, Kind: "invalid_tenant", Message: "The name of the login is too long",
			Details: "It may have " + strconv.Itoa(MaxName) + " bytes.",
		})
	default:
		return false
	}
	return true
}
