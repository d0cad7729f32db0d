package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// A listing shows everybody's prompts to everybody, so it must be JSON that every
// parser reads, whatever one of them has posted (see pyjson.Strict). All
// listings, and what is shown of a single job, go out through WriteListing,
// WriteDetail or a listing.

// WriteListing answers with a listing that clients ask for at every status
// message: it has an ETag, so that an unchanged one costs no bytes.
func WriteListing(w http.ResponseWriter, r *http.Request, v pyjson.Value) {
	body := pyjson.Strict(pyjson.Marshal(v))
	sum := sha256.Sum256(body)
	if !Unchanged(w, r, sum[:]) {
		WriteJSON(w, http.StatusOK, body)
	}
}

// WriteDetail answers with what a listing has of one job.
func WriteDetail(w http.ResponseWriter, v pyjson.Value) {
	WriteJSON(w, http.StatusOK, pyjson.Strict(pyjson.Marshal(v)))
}

// Has reports whether a client has a listing already. Then Unchanged answers it.
func Has(r *http.Request, sum []byte) bool { return r.Header.Get("If-None-Match") == etag(sum) }

func etag(sum []byte) string { return `"` + hex.EncodeToString(sum[:12]) + `"` }

// Unchanged sets a listing's ETag and answers a client that has it already.
func Unchanged(w http.ResponseWriter, r *http.Request, sum []byte) bool {
	w.Header().Set("Etag", etag(sum))
	w.Header().Set("Cache-Control", "no-cache")
	if !Has(r, sum) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}
