package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// A listing shows everybody's prompts to everybody, so it must be JSON that every
// parser reads, whatever one of them has posted (see pyjson.Strict). All
// listings, and what is shown of a single job, go out through writeListing,
// writeDetail or a listing.

// writeListing answers with a listing that clients ask for at every status
// message: it has an ETag, so that an unchanged one costs no bytes.
func writeListing(w http.ResponseWriter, r *http.Request, v pyjson.Value) {
	body := pyjson.Strict(pyjson.Marshal(v))
	sum := sha256.Sum256(body)
	if !unchanged(w, r, sum[:]) {
		writeJSON(w, http.StatusOK, body)
	}
}

// writeDetail answers with what a listing has of one job.
func writeDetail(w http.ResponseWriter, v pyjson.Value) {
	writeJSON(w, http.StatusOK, pyjson.Strict(pyjson.Marshal(v)))
}

// unchanged sets a listing's ETag and answers a client that has it already.
func unchanged(w http.ResponseWriter, r *http.Request, sum []byte) bool {
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	w.Header().Set("Etag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") != tag {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}
