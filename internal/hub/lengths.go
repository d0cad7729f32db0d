package hub

import (
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

const (
	// maxTarget is the longest path and query, in bytes: aiohttp's own bound,
	// so that no client of ComfyUI sends more. It bounds all names that come in
	// a path or a query.
	maxTarget = 8190
	// maxName bounds what a client calls itself, its prompts and its pictures,
	// in bytes. Such names are kept, in maps and as keys, for as long as what
	// they name; those of known clients are UUIDs and a prefix.
	maxName = catalog.MaxID
)

// refuseLong answers requests that name something at too great a length, and
// reports whether it did.
func refuseLong(w http.ResponseWriter, r *http.Request, v Visitor, a asker) bool {
	switch {
	case len(r.RequestURI) > maxTarget:
		w.Header().Set("Connection", "close")
		writeText(w, http.StatusBadRequest, "Got more than "+strconv.Itoa(maxTarget)+" bytes when reading the request line")
	case len(a.client) > maxName:
		writeJSON(w, http.StatusBadRequest, promptError("invalid_client_id", "clientId is too long",
			"It may have "+strconv.Itoa(maxName)+" bytes."))
	case len(v.Tenant) > maxName:
		writeHubError(w, hubError{
			status: http.StatusBadRequest, kind: "invalid_tenant", message: "The name of the login is too long",
			details: "It may have " + strconv.Itoa(maxName) + " bytes.",
		})
	default:
		return false
	}
	return true
}
